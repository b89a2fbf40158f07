"""PIPE-3: which messages a query reads next, and how they are split into tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncecast.spark.ranges import Position, Range, between, enough, limited, packed

offsets = st.integers(0, 1000)
spans = st.dictionaries(st.sampled_from("abcd"), st.tuples(offsets, offsets), max_size=4)


def positions(spans: dict[str, tuple[int, int]], at: int) -> dict[str, Position]:
    return {topic: Position(1, 0, sorted(span)[at]) for topic, span in spans.items()}


def test_query_reads_exactly_the_messages_between_two_positions() -> None:
    start = {"a": Position(1, 0, 3), "b": Position(1, 0, 5)}
    end = {"b": Position(1, 0, 5), "a": Position(1, 0, 9)}
    assert between(start, end) == [Range("a", 1, 3, 9)]


def test_recorded_topic_start_takes_precedence_over_a_new_start() -> None:
    """A query that crashed in its first micro-batch asks again after more messages arrive."""
    end = {"a": Position(1, 3, 9), "new": Position(1, 2, 4), "remade": Position(2, 0, 1)}
    start = {"a": Position(1, 8, 8), "remade": Position(1, 0, 7)}
    expected = [Range("a", 1, 3, 9), Range("new", 1, 2, 4), Range("remade", 2, 0, 1)]
    assert between(start, end) == expected


@given(spans, st.integers(1, 500))
def test_micro_batch_uses_the_row_limit_fully_and_never_exceeds_it(
    spans: dict[str, tuple[int, int]], rows_max: int
) -> None:
    start, end = positions(spans, 0), positions(spans, 1)
    reached = limited(start, end, rows_max)
    assert reached.keys() == end.keys()
    for topic in end:
        assert start[topic].next <= reached[topic].next <= end[topic].next
    waiting = sum(each.rows for each in between(start, end))
    assert sum(each.rows for each in between(start, reached)) == min(waiting, rows_max)


def test_each_topic_gets_its_share_of_the_backlog() -> None:
    start = {"a": Position(1, 0, 0), "b": Position(1, 0, 0)}
    end = {"a": Position(1, 0, 900), "b": Position(1, 0, 100)}
    assert limited(start, end, 100) == {"a": Position(1, 0, 90), "b": Position(1, 0, 10)}


def test_large_reads_are_split_among_all_cores_and_small_reads_are_not() -> None:
    def tasks(rows: int, cores: int = 4) -> int:
        return enough([Range("t", 1, 0, rows, size=1 << 20)], cores)

    assert [tasks(rows) for rows in (1, 3, 5, 100, 511, 513, 1025)] == [1, 1, 2, 4, 4, 8, 12]
    assert tasks(1000, cores=64) == 64


def test_single_task_reads_many_small_topics() -> None:
    """A task start costs as much as many small topics."""
    ranges = [Range(f"t{number:03}", 1, 0, 110, size=100) for number in range(1000)]
    assert enough(ranges, 2) == 2
    tasks = packed(ranges, 2, None)
    assert [len(ranges) for ranges in tasks] == [500, 500]
    assert enough(ranges, 64) < 20


def test_tasks_have_similar_sizes() -> None:
    ranges = [Range("large", 1, 0, 100, size=900), Range("small", 1, 0, 100, size=100)]
    sizes = [sum(each.bytes for each in task) for task in packed(ranges, 10, None)]
    assert len(sizes) == 10
    assert max(sizes) - min(sizes) <= 2 * 900


sizes = st.lists(st.integers(1, 10**6), min_size=4, max_size=4)


@given(spans, sizes, st.integers(1, 20), st.none() | st.integers(1, 200))
def test_tasks_cover_all_ranges_in_order_and_respect_the_row_limit(
    spans: dict[str, tuple[int, int]], sizes: list[int], tasks_min: int, rows_max: int | None
) -> None:
    ranges = between(positions(spans, 0), positions(spans, 1))
    ranges = [each._replace(size=size) for each, size in zip(ranges, sizes, strict=False)]
    tasks = packed(ranges, tasks_min, rows_max)
    total = sum(each.rows for each in ranges)
    assert all(0 < sum(each.rows for each in task) <= (rows_max or total) for task in tasks)
    assert all(each.rows > 0 for task in tasks for each in task)
    cut = [each for task in tasks for each in task]
    for whole in ranges:
        own = [each for each in cut if each.topic == whole.topic]
        assert [each.first for each in own] == [whole.first, *(each.until for each in own[:-1])]
        assert own[-1].until == whole.until
    assert [each.topic for each in cut] == sorted(each.topic for each in cut)
    assert len(tasks) >= min(tasks_min, total)
