"""Topics as a Spark source, batch and streaming (PIPE-1 to PIPE-3).

The driver decides from which offset to which each topic is read; Spark writes that into its
checkpoint, so that what is read again after a crash is the same. Tasks scan their piece, without a
subscription, and hand Arrow batches on without looking at a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from oncecast.client import blocking, errors
from oncecast.client.scanning import Located
from oncecast.client.starts import EARLIEST, NEW, from_offset
from oncecast.pipeline.options import BadOption, Ends, SourceOptions
from oncecast.pipeline.ranges import Position, Range, between, limited, split
from oncecast.pubsub.commands import FromOffset, Start

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
ROWS = 65_536  # about so many messages are handed to Spark at once
BYTES = 8 << 20  # or so many bytes


class Lost(errors.OncecastError):
    """What the query should have read is no longer there."""

    code = "data-lost"
    remedy = (
        "let the query keep a subscription (option subscription) or the topic keep more; to go on "
        "without what is gone, set option failOnDataLoss to false"
    )


class Piece(InputPartition):
    """What one task reads."""

    def __init__(self, range_: Range) -> None:
        super().__init__(range_)
        self.range = range_


class Topics:
    """The driver's view of the node."""

    def __init__(self, client: blocking.Client, options: SourceOptions) -> None:
        self._client, self._options = client, options

    def names(self) -> list[str]:
        if self._options.pattern is None:
            return sorted(set(self._options.topics))
        wanted = re.compile(self._options.pattern)
        return [view.name for view in self._client.topics() if wanted.fullmatch(view.name)]

    def locate(self, where: Ends, otherwise: Start) -> dict[str, Located]:
        """Each topic's place; what `where` does not name is at `otherwise`."""
        names = self.names()
        if isinstance(where, dict):
            for name in set(where) - set(names):
                raise BadOption(f"offsets are given for topic {name!r}, which is not read")
        return {
            name: self._client.locate(
                name, where.get(name, otherwise) if isinstance(where, dict) else where
            )
            for name in names
        }

    def start(self) -> dict[str, Position]:
        where = self._options.start or EARLIEST
        found = {}
        for name, place in self.locate(where, EARLIEST).items():
            asked = where.get(name) if isinstance(where, dict) else where
            if isinstance(asked, FromOffset):
                self._check(name, asked.offset, place)
            found[name] = Position(place.life, place.offset)
        return found

    def end(self, where: Ends = NEW) -> dict[str, Position]:
        found = {}
        for name, place in self.locate(where, NEW).items():
            asked = where.get(name) if isinstance(where, dict) else where
            if isinstance(asked, FromOffset) and asked.offset > place.next:
                raise beyond(name, asked.offset, place)
            found[name] = Position(place.life, place.offset)
        return found

    def _check(self, name: str, offset: int, place: Located) -> None:
        if offset > place.next:
            raise beyond(name, offset, place)
        if offset < place.first:
            self.lost(f"offsets {offset} to {place.first - 1} of topic {name!r} are gone")

    def lost(self, fact: str) -> None:
        if self._options.fail_on_loss:
            raise Lost(fact)

    def resume(
        self, start: Mapping[str, Position], end: Mapping[str, Position]
    ) -> dict[str, Position]:
        """Where each topic of `end` is read on; topics that have come since, from their start."""
        found: dict[str, Position] = {}
        for name, (life, until) in end.items():
            before = start.get(name)
            place = self._client.locate(name, EARLIEST)
            if before is not None and before.life != life:
                self.lost(f"topic {name!r} was deleted and made again")
            at = before.next if before is not None and before.life == life else place.first
            if place.life != life:
                self.lost(f"topic {name!r} was deleted and made again")
                at = until  # nothing of it can be read any more
            elif at < place.first:
                self.lost(f"offsets {at} to {min(place.first, until) - 1} of {name!r} are gone")
                at = min(place.first, until)
            found[name] = Position(life, min(at, until))
        return found


def beyond(name: str, offset: int, place: Located) -> errors.OutOfRange:
    fact = f"offset {offset} of topic {name!r}: it ends before {place.next}"
    return errors.OutOfRange(fact, "give an offset that the topic has, or latest")


def pieces(options: SourceOptions, ranges: list[Range]) -> list[Piece]:
    shared = split(ranges, options.partitions_min, options.partition_rows_max)
    return [Piece(each) for each in shared]


def read(options: SourceOptions, piece: InputPartition) -> Iterator[pa.RecordBatch]:
    """In a task: the piece as Arrow batches of a size that Spark likes."""
    if not isinstance(piece, Piece):
        return  # Spark makes a task of its own when there is nothing to read
    topic, life, first, until = piece.range
    columns = [*COLUMNS, *(HEADERS if options.headers else ())]
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    with options.node.connect() as client:
        try:
            for each in client.scan(topic, from_offset(first), until, life=life):
                gathered.append(each.to_arrow().select(columns))
                rows, size = rows + len(gathered[-1]), size + len(each.chunk.batch)
                if rows >= ROWS or size >= BYTES:
                    yield from joined(gathered)
                    gathered, rows, size = [], 0, 0
        except (errors.MessagesLost, errors.TopicReplaced, errors.OutOfRange) as error:
            if options.fail_on_loss:
                raise Lost(str(error)) from None
        yield from joined(gathered)


def joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    merged: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return merged


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with options.node.connect() as client:
            topics = Topics(client, options)
            start, end = topics.start(), topics.end(options.end or NEW)
        for name, place in end.items():
            if place.next < start[name].next and options.end is not None:
                fact = f"topic {name!r} is read from {start[name].next} to before {place.next}"
                raise BadOption(f"{fact}: the end must not be before the start")
        return pieces(options, between(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver and keeps one connection; tasks get a copy without it."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client: blocking.Client | None = None
        self._target: dict[str, Position] | None = None  # of a query that ends there

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_client": None, "_target": None}

    @property
    def _topics(self) -> Topics:
        if self._client is None:
            self._client = self._options.node.connect()
            self._client.__enter__()
        return Topics(self._client, self._options)

    def initialOffset(self) -> dict[str, Any]:
        start = self._topics.start()
        if self._options.subscription is not None:
            self._keep(start)
        return as_offset(start)

    def _keep(self, positions: Mapping[str, Position]) -> None:
        """From now on the topics keep what lies behind these positions."""
        assert self._client is not None
        assert self._options.subscription is not None
        for name, (_, offset) in positions.items():
            self._client.hold(name, self._options.subscription, from_offset(offset))

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.rows_max
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._topics.end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = as_positions(start)
        end = self._topics.end() if self._target is None else self._target
        end = {**before, **end}
        if isinstance(limit, ReadMaxRows):
            end = limited(self._topics.resume(before, end), end, limit.max_rows)
        return as_offset(end)

    def reportLatestOffset(self) -> dict[str, Any]:
        return as_offset(self._topics.end())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        after = as_positions(end)
        resumed = self._topics.resume(as_positions(start), after)
        return pieces(self._options, between(resumed, after))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        if self._options.subscription is not None:
            _ = self._topics
            self._keep(as_positions(end))

    def stop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def as_offset(positions: Mapping[str, Position]) -> dict[str, Any]:
    """As it stands in Spark's checkpoint."""
    return {topic: {"life": life, "next": next_} for topic, (life, next_) in positions.items()}


def as_positions(offset: Mapping[str, Any]) -> dict[str, Position]:
    return {topic: Position(int(at["life"]), int(at["next"])) for topic, at in offset.items()}
