"""A member of a consumer group takes, releases and drops partitions (PART-2)."""

from __future__ import annotations

from oncecast.client.membership import WAITING_MIN, Changes, Membership
from oncecast.wire.results import Enlisted

NOTHING = Changes((), (), ())


def member(*held: tuple[int, int]) -> Membership:
    found = Membership(9.0)
    assert found.enlisted(100.0, Enlisted(4, held)) == Changes(held, (), ())
    return found


def test_member_takes_what_it_is_told_to_hold_once() -> None:
    """PART-2"""
    found = member((0, 1), (1, 2))
    assert found.enlisted(103.0, Enlisted(4, ((0, 1), (1, 2)))) == NOTHING
    more = Enlisted(5, ((0, 1), (1, 2), (4, 7)))
    assert found.enlisted(106.0, more) == Changes(((4, 7),), (), ())
    assert (found.partitions, found.terms) == (5, {0: 1, 1: 2, 4: 7})


def test_member_enlists_again_after_a_third_of_its_lifetime() -> None:
    """PART-2"""
    found = member((0, 1))
    assert (found.due, found.until) == (103.0, 109.0)
    assert not found.over(108.9)
    assert found.over(109.0)


def test_member_that_waits_enlists_more_often_with_growing_pauses() -> None:
    """PART-2"""
    found = member((0, 1))
    pauses = []
    for _ in range(7):
        found.enlisted(200.0, Enlisted(4, ((0, 1),), waiting=True))
        pauses.append(round(found.due - 200.0, 3))
    assert pauses == [2 * WAITING_MIN, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0]
    found.enlisted(200.0, Enlisted(4, ((0, 1),)))
    found.enlisted(200.0, Enlisted(4, ((0, 1),), waiting=True))
    assert found.due == 200.0 + 2 * WAITING_MIN


def test_released_partition_is_reported_until_the_answer_no_longer_has_it() -> None:
    """PART-2"""
    found = member((0, 1), (1, 2))
    release = Enlisted(4, ((0, 1),), ((1, 2),))
    assert found.enlisted(103.0, release) == Changes((), ((1, 2),), ())
    assert found.enlisted(104.0, release) == NOTHING
    found.stopped(1, 99, 104.5)
    assert not found.released
    found.stopped(1, 2, 105.0)
    assert (list(found.released), found.due) == ([(1, 2)], 105.0)
    assert found.enlisted(105.0, release) == NOTHING
    assert list(found.released) == [(1, 2)]
    assert found.enlisted(106.0, Enlisted(4, ((0, 1),))) == NOTHING
    assert not found.released


def test_partition_that_returns_before_it_is_released_is_still_released() -> None:
    """PART-2: the member has already stopped to read it, so it needs a new term."""
    found = member((0, 1), (1, 2))
    found.enlisted(103.0, Enlisted(4, ((0, 1),), ((1, 2),)))
    assert found.enlisted(104.0, Enlisted(4, ((0, 1), (1, 2)))) == NOTHING
    found.stopped(1, 2, 105.0)
    assert found.enlisted(105.0, Enlisted(4, ((0, 1), (1, 2)))) == NOTHING
    assert found.enlisted(106.0, Enlisted(4, ((0, 1), (1, 3)))) == Changes(((1, 3),), (), ())


def test_partition_of_another_member_is_dropped_at_once() -> None:
    """PART-2"""
    found = member((0, 1), (1, 2))
    assert found.enlisted(120.0, Enlisted(4, ((0, 5),))) == Changes(((0, 5),), (), (0, 1))
    found.stopped(1, 2, 121.0)
    assert found.terms == {0: 5}
    assert not found.released


def test_partition_that_the_member_never_read_is_released_at_once() -> None:
    """PART-2: the answer that assigned it may be lost."""
    found = member((0, 1))
    assert found.enlisted(103.0, Enlisted(4, ((0, 1),), ((3, 9),))) == NOTHING
    assert (list(found.released), found.due) == ([(3, 9)], 103.0)
