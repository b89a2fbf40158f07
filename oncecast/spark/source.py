"""A Spark source of topics, batch and streaming (PIPE-1 to PIPE-3).

The driver decides the offset range of each topic. Spark writes the ranges to its checkpoint, so a
repeated read gets the same messages. Tasks scan their piece without a subscription, and pass Arrow
batches on without looking at single messages.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from oncecast import errors
from oncecast.client import blocking
from oncecast.client.columns import batches
from oncecast.client.scanning import Located, Slice
from oncecast.client.starts import NEW, from_offset
from oncecast.errors import BadOption, DataLost
from oncecast.spark.options import SourceOptions
from oncecast.spark.ranges import Position, Positions, Range, between, enough, limited, split
from oncecast.spark.topics import Topics

COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "offset": "bigint",
    "timestamp": "timestamp",
    "producer": "string",
    "sequence": "bigint",
}
HEADERS = {"headers": "map<string, binary>"}
KEYS = ("life", "begin", "next")  # field names of a Position in checkpoints
GONE = (errors.MessagesLost, errors.TopicReplaced, errors.OutOfRange, errors.NoSuchTopic)


class Piece(InputPartition):
    """The range that one task reads."""

    def __init__(self, range_: Range) -> None:
        super().__init__(range_)
        self.range = range_


def pieces(options: SourceOptions, topics: Topics, ranges: list[Range]) -> list[Piece]:
    found = [each for each in map(topics.still_there, ranges) if each.rows]
    count = options.partitions_min or enough(found, os.cpu_count() or 1)
    return [Piece(each) for each in split(found, count, options.partition_rows_max)]


def read(options: SourceOptions, piece: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the piece as Arrow batches of a suitable size."""
    if not isinstance(piece, Piece):
        return  # Spark adds an empty task if there is nothing to read
    columns = [*COLUMNS, *(HEADERS if options.headers else ())]
    yield from batches(slices(options, piece.range), columns)


def slices(options: SourceOptions, range_: Range) -> Iterator[Slice]:
    """Yield the slices of a range. Skip lost messages or raise, depending on the options."""
    topic, topic_id, at, until, _ = range_
    with options.node.connect(patient=True) as client:
        while at < until:
            try:
                for each in client.scan(topic, from_offset(at), until, topic_id=topic_id):
                    at = each.end
                    yield each
            except GONE as error:
                if options.fail_on_loss:
                    raise DataLost(error.message) from None
                at = error.next if isinstance(error, errors.MessagesLost) else until


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with options.node.connect() as client:
            topics = Topics(client, options)
            start = topics.start()
            ends = topics.end(options.end or NEW)
            end = topics.towards(ends, start)
            for name, at in start.items():
                if options.end is not None and name in ends and ends[name].offset < at.next:
                    chosen = f"topic {name!r} from {at.next} to before {ends[name].offset}"
                    raise BadOption(f"{chosen}: the end is before the start", "use a later end")
            return pieces(options, topics, between(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Runs on the driver with one connection. Tasks get a copy without it."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._connection = ExitStack()
        self._client: blocking.Client | None = None
        # Where a query with trigger availableNow ends.
        self._target: dict[str, Located] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamReader, (self._options,)

    @property
    def _topics(self) -> Topics:
        if self._client is None:
            self._client = self._connection.enter_context(self._options.node.connect())
        return Topics(self._client, self._options)

    def initialOffset(self) -> dict[str, Any]:
        start = self._topics.start()
        self._topics.keep(start, forward=False)
        return as_offset(start)

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.rows_max
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._topics.end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before, topics = as_positions(start), self._topics
        end = topics.towards(topics.end() if self._target is None else self._target, before)
        if isinstance(limit, ReadMaxRows):
            end = limited(before, end, limit.max_rows)
        return as_offset(end)

    def reportLatestOffset(self) -> dict[str, Any]:
        ends = self._topics.end()
        return as_offset(
            {name: Position(at.topic_id, at.first, at.next) for name, at in ends.items()}
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = between(as_positions(start), as_positions(end))
        return pieces(self._options, self._topics, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._topics.keep(as_positions(end), forward=True)

    def stop(self) -> None:
        self._client = None
        self._connection.close()


def as_offset(positions: Positions) -> dict[str, Any]:
    """Return the positions in the format of Spark's checkpoint."""
    return {topic: dict(zip(KEYS, at, strict=True)) for topic, at in positions.items()}


def as_positions(offset: Mapping[str, Any]) -> dict[str, Position]:
    return {topic: Position(*(at[key] for key in KEYS)) for topic, at in offset.items()}
