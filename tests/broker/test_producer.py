"""SVC-2: a producer knows its last offsets and the range of each state directory."""

from __future__ import annotations

from oncecast.broker.producer import DIRECTORIES_KEPT, RUNS_MAX, Producer


def producer(*appended: tuple[int, int]) -> Producer:
    """Return a producer with these runs of (offset, count)."""
    found = Producer(5, "inc-1")
    for offset, count in appended:
        found.appended(offset, count)
    return found


def test_consecutive_messages_form_one_run() -> None:
    """SVC-2"""
    found = producer((10, 2), (12, 3), (20, 1), (21, 4), (30, 1))
    assert (list(found.runs), found.next) == ([0, 10, 5, 20, 10, 30], 11)


def test_offset_is_known_for_contiguous_messages() -> None:
    """SVC-2"""
    found = producer((10, 5), (20, 5), (30, 1))
    known = {
        (0, 1): 10,
        (0, 5): 10,
        (4, 1): 14,
        (0, 6): -1,
        (4, 2): -1,
        (5, 5): 20,
        (9, 1): 24,
        (9, 2): -1,
        (10, 1): 30,
        (10, 2): -1,
    }
    assert {each: found.offset_of(*each) for each in known} == known


def test_only_the_last_runs_are_kept() -> None:
    """SVC-2"""
    found = producer(*[(10 * run, 1) for run in range(10)])
    assert RUNS_MAX == 8
    assert list(found.runs) == [number for run in range(2, 10) for number in (run, 10 * run)]
    assert [found.offset_of(sequence, 1) for sequence in (1, 2, 9)] == [-1, 20, 90]


def test_each_state_directory_gets_its_last_range() -> None:
    """SVC-2"""
    found = producer()
    assert found.keep("a", forget=False) == (0, 0)
    found.appended(0, 2)
    assert found.keep("a", forget=False) == (0, 2)
    assert found.keep("b", forget=False) == (2, 2)
    assert found.earlier == {"a": (0, 2)}
    assert found.keep("a", forget=False) == (0, 2)  # b has put nothing
    assert (found.earlier, found.since) == ({}, 0)
    found.keep("b", forget=False)
    found.appended(2, 3)
    assert found.keep("a", forget=False) == (0, 2)
    found.appended(5, 1)
    assert found.keep("a", forget=False) == (5, 6)
    assert found.keep("c", forget=False) == (6, 6)
    assert list(found.earlier.items()) == [
        ("b", (2, 5)),
        ("a", (5, 6)),
    ]  # in the order of their last puts
    assert [found.knows(directory_id) for directory_id in "abcd"] == [True, True, True, False]


def test_only_older_logs_limit_the_state_directories_per_producer() -> None:
    """SVC-2"""
    assert DIRECTORIES_KEPT == 4
    for forget, known in ((True, list("bcde")), (False, list("abcde"))):
        found = producer()
        for at, directory_id in enumerate("abcdef"):
            found.keep(directory_id, forget=forget)
            found.appended(at, 1)
        assert list(found.earlier) == known


def test_producer_keeps_its_record_number() -> None:
    """SVC-9"""
    found = producer()
    assert (found.record, found.used) == (0, 0)
    found.follow_use(100)
    assert (found.record, found.used) == (5, 100)
    found.epoch = 9
    found.follow_use(200)
    assert (found.record, found.used) == (5, 200)
