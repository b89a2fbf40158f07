"""A Spark source of topics, for batch and streaming (PIPE-1 to PIPE-3).

The driver decides the offset range of each topic. Spark writes the ranges to its checkpoint, so a
repeated read returns the same messages. Tasks scan their ranges without a subscription, and yield
Arrow batches without looping over messages.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from oncecast.client import blocking
from oncecast.client.starts import NEW
from oncecast.errors import BadOption
from oncecast.spark.ranges import Position, Positions, Range, between, enough, limited, packed
from oncecast.spark.source_options import SourceOptions
from oncecast.spark.topics import Topics, Views

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

KEYS = ("life", "begin", "next")  # field names of a Position in checkpoints
TOTAL = ""  # stands for all topics of a query; a topic cannot have this name
TIMED = 64  # number of topics with the largest lag whose delay is reported in seconds
FIRST = float("-inf")  # stands for the start time of the last micro-batch, before there is one


class Piece(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def pieces(
    options: SourceOptions, topics: Topics, ranges: list[Range], views: Views
) -> list[Piece]:
    found = [topics.still_there(each, views) for each in ranges]
    found = [each for each in found if each.rows]
    count = options.partitions_min or enough(found, os.cpu_count() or 1)
    return [Piece(each) for each in packed(found, count, options.partition_rows_max)]


def read(
    options: SourceOptions, columns: Mapping[str, str], piece: InputPartition
) -> Iterator[pa.RecordBatch]:
    from oncecast.spark import tasks  # only tasks need Arrow

    if isinstance(piece, Piece):  # Spark adds an empty task if there is nothing to read
        yield from tasks.read(options, columns, piece.ranges)


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, columns: Mapping[str, str]) -> None:
        self._options, self._columns = options, columns

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with options.node.connect() as client:
            topics = Topics(client, options)
            views = topics.views()
            topics.check_all_exist(views)
            if options.start is None:
                topics.check_kept(views)
            start = topics.start(views)
            ends = topics.end(views, options.end or NEW)
            for name, at in start.items():
                if options.end is not None and ends[name].next < at.next:
                    begin, end = f"start (offset {at.next})", f"end (offset {ends[name].next})"
                    fact = f"topic {name!r}: the {end} is before the {begin}"
                    raise BadOption(fact, "use a later end")
            return pieces(options, topics, between(start, topics.towards(ends, start)), views)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options, self._columns, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming reader. It runs on the driver, and its copies in tasks have no connection."""

    def __init__(
        self,
        options: SourceOptions,
        columns: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options, self._columns, self._clock = options, columns, clock
        self._connection = ExitStack()
        self._client: blocking.Client | None = None
        # The positions at which a query with the trigger availableNow ends.
        self._target: dict[str, Position] | None = None
        # The last micro-batch's topics, end and planning time.
        self._views: Views = {}
        self._end: Positions = {}
        self._began = FIRST

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamReader, (self._options, self._columns)

    @property
    def _topics(self) -> Topics:
        if self._client is None:
            self._client = self._connection.enter_context(self._options.node.connect())
        return Topics(self._client, self._options)

    def initialOffset(self) -> dict[str, Any]:
        topics = self._topics
        views = topics.views()
        topics.check_all_exist(views)
        topics.check_keepable(views)
        start = topics.start(views)
        topics.keep(start, views, forward=False)
        return as_offset(start)

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.rows_max is not None:
            return ReadMaxRows(options.rows_max)
        return ReadAllAvailable() if options.rows_min is None else ReadMinRows(options.rows_min)

    def prepareForTriggerAvailableNow(self) -> None:
        topics = self._topics
        self._target = topics.end(topics.views())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before, topics = as_positions(start), self._topics
        views = topics.views()
        # Spark asks for the next micro-batch once everything before `start` is recorded as done.
        topics.keep(before, views, forward=True)
        end = topics.towards(topics.end(views) if self._target is None else self._target, before)
        if self._options.fail_on_loss:
            topics.check_all_exist(views)
        added = {name: at._replace(next=at.begin) for name, at in end.items() if name not in before}
        topics.keep(added, views, forward=False)
        rows = sum(each.rows for each in between(before, end))
        if self._waits_for_more(rows, limit):
            end = before
        elif isinstance(limit, ReadMaxRows):
            end = limited(before, end, limit.max_rows)
        if end != before:
            self._began = self._clock()
        self._views, self._end = views, end
        return as_offset(end)

    def _waits_for_more(self, rows: int, limit: ReadLimit) -> bool:
        """Return whether the next micro-batch should wait for more messages."""
        rows_min = self._options.rows_min
        if rows_min is None or rows >= rows_min or self._target is not None:
            return False
        limited_by_us = isinstance(limit, (ReadMaxRows, ReadMinRows))
        return limited_by_us and self._clock() < self._began + self._options.delay_max

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the topics' ends and the query's lag."""
        topics = self._topics
        views = self._views or topics.views()
        ends = topics.end(views)
        behind = {each.topic: each.rows for each in between(self._end, ends)} if self._end else {}
        late = sorted(behind, key=lambda name: -behind[name])[:TIMED]
        since = topics.waiting_since({name: self._end.get(name, ends[name]) for name in late})
        now = time.time_ns() // 1000
        seconds = {name: max(0, now - at) / 1e6 for name, at in since.items() if at}
        report = as_offset(ends)
        for name, each in report.items():
            each |= {"behind": behind.get(name, 0), "seconds": round(seconds.get(name, 0.0), 3)}
        most = round(max(seconds.values(), default=0.0), 3)
        return report | {TOTAL: {"behind": sum(behind.values()), "seconds": most}}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges, topics = between(as_positions(start), as_positions(end)), self._topics
        views = self._views
        if not views or as_positions(end) != self._end:  # the first call of a restarted query
            views = topics.described(each.topic for each in ranges)
        return pieces(self._options, topics, ranges, views)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options, self._columns, partition)

    def stop(self) -> None:
        self._client = None
        self._connection.close()


def as_offset(positions: Positions) -> dict[str, Any]:
    """Return the positions in the format of Spark's checkpoint."""
    return {topic: dict(zip(KEYS, at, strict=True)) for topic, at in positions.items()}


def as_positions(offset: Mapping[str, Any]) -> dict[str, Position]:
    return {topic: Position(*(at[key] for key in KEYS)) for topic, at in offset.items()}
