"""A Spark sink with exactly-once semantics, batch and streaming (PIPE-2).

Each task stages its rows, where readers do not see them. The driver publishes the parts of the
successful tasks in one command, under the identity (query, batch). A repeated task, or a query
repeated after a crash, changes nothing that was published. Unpublished parts are dropped.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType, TimestampType

from oncecast.client import blocking
from oncecast.errors import BadOption, BadRows
from oncecast.spark.options import SinkOptions
from oncecast.wire.batch_arrow import from_arrow

PART_BYTES = 4 << 20
PART_ROWS = 100_000
IN_FLIGHT = 4  # parts in flight of one task
WRITTEN: dict[str, tuple[DataType, ...]] = {
    "value": (BinaryType(), StringType()),
    "key": (BinaryType(), StringType()),
    "headers": (MapType(StringType(), BinaryType()),),
    "topic": (StringType(),),
    "timestamp": (TimestampType(),),
}


def check_schema(schema: StructType, options: SinkOptions) -> None:
    found = {field.name: field.dataType for field in schema.fields}
    if "value" not in found:
        raise BadRows("column `value` is missing", "add it with .select(... as value)")
    for name, kind in found.items():
        if name not in WRITTEN:
            allowed = ", ".join(WRITTEN)
            raise BadRows(f"column {name!r} is not supported", f"drop it, or use one of {allowed}")
        if not any(alike(kind, each) for each in WRITTEN[name]):
            allowed = " or ".join(each.simpleString() for each in WRITTEN[name])
            raise BadRows(f"column {name} is {kind.simpleString()}", f"cast it to {allowed}")
    if ("topic" in found) == (options.topic is not None):
        raise BadOption("set either option topic or a column `topic`")


def alike(one: DataType, other: DataType) -> bool:
    return one.simpleString() == other.simpleString()


@dataclass
class Parts(WriterCommitMessage):
    """The parts that one task has staged."""

    source: str
    number: int
    names: tuple[str, ...]
    topics: tuple[str, ...] = ()  # the topic of each part


class Stager:
    """Stages the rows of one task in parts, several of them in flight."""

    def __init__(self, client: blocking.Client, options: SinkOptions, source: str, number: int):
        self._client, self._options = client, options
        self._source, self._number = source, number
        # The name is unique among all attempts, also after a restart of the driver.
        self._attempt = f"{task().partitionId():05}.{uuid4().hex}"
        self._names: list[str] = []
        self._topics: list[str] = []
        self._pool = ThreadPoolExecutor(IN_FLIGHT)
        self._in_flight: list[Future[Any]] = []

    def run(self, batches: Iterable[pa.RecordBatch]) -> Parts:
        with self._pool:
            for batch in batches:
                for topic, rows in self._by_topic(batch):
                    for piece in cut(rows):
                        self._stage(topic, piece)
            while self._in_flight:
                self._in_flight.pop(0).result()
        return Parts(self._source, self._number, tuple(self._names), tuple(self._topics))

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._options.topic is not None:
            yield self._options.topic, batch
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise BadRows("a row has no topic", "fill in the `topic` column or drop those rows")
        for topic in sorted(pc.unique(topics).to_pylist()):
            yield topic, batch.filter(pc.equal(topics, topic))

    def _stage(self, topic: str, rows: pa.RecordBatch) -> None:
        while len(self._in_flight) >= IN_FLIGHT:
            self._in_flight.pop(0).result()
        name = f"{self._attempt}.{len(self._names):06}"
        self._names.append(name)
        self._topics.append(topic)
        packed = from_arrow(rows, timestamp=time.time_ns() // 1000, zstd=self._options.zstd)
        stage = self._client.stage
        self._in_flight.append(
            self._pool.submit(stage, self._source, self._number, name, topic, len(rows), packed)
        )


def task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows are written in a task"
    return context


def cut(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield pieces that are small enough to be sent at once."""
    half = len(rows) // 2
    if half and (rows.nbytes > PART_BYTES or len(rows) > PART_ROWS):
        yield from cut(rows.slice(0, half))
        yield from cut(rows.slice(half))
    elif len(rows):
        yield rows


Messages = Sequence[WriterCommitMessage | None]


def staged(messages: Messages) -> list[Parts]:
    return [each for each in messages if isinstance(each, Parts) and each.names]


def topics_of(client: blocking.Client, parts: Iterable[Parts]) -> list[str]:
    """Return the topics to name in commands about a source.

    On a ring of groups topics have different owners, so each one is named. Elsewhere the list is
    [""]: one command concerns all topics.
    """
    if not client.ring().processes:
        return [""]
    return sorted({topic for each in parts for topic in each.topics})


def publish(client: blocking.Client, messages: Messages) -> None:
    """Publish the parts of successful tasks, in the order of the partitions.

    On a ring, each topic needs its own command. A driver that crashes in between publishes the rest
    after its restart, and nothing twice.
    """
    parts = staged(messages)
    for topic in topics_of(client, parts) if parts else ():
        names = sorted(
            name
            for each in parts
            for name, part_topic in zip(each.names, each.topics, strict=True)
            if topic in ("", part_topic)
        )
        client.publish_staged(parts[0].source, parts[0].number, names, topic)


def drop(options: SinkOptions, messages: Messages) -> None:
    parts = staged(messages)
    if parts:
        with options.node.connect() as client:
            for topic in topics_of(client, parts):
                client.drop_staged(parts[0].source, parts[0].number, topic)


class BatchWriter(DataSourceArrowWriter):
    """Writes a batch once, as a whole. Each batch is a source with one number."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._source = f"spark/{uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Parts:
        with self._options.node.connect() as client:
            return Stager(client, self._options, self._source, 0).run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with self._options.node.connect(patient=True) as client:
            publish(client, messages)
            for topic in topics_of(client, staged(messages)):
                client.close_source(self._source, topic)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        drop(self._options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches.

    The source is the id of the query, and the number is the id of the batch.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Parts:
        source, number = identity()
        with self._options.node.connect(patient=True) as client:
            return Stager(client, self._options, source, number).run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        check_number(messages, batchId)
        with self._options.node.connect(patient=True) as client:
            publish(client, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        drop(self._options, messages)


def identity() -> tuple[str, int]:
    """Return the query and the batch of this task. Spark provides them only in this way."""
    query = task().getLocalProperty("sql.streaming.queryId")
    number = task().getLocalProperty("streaming.sql.batchId")
    if not query or not number:
        raise RuntimeError(
            "Spark does not provide the query and batch ids that exactly-once writes need; "
            "use a version of pyspark that oncecast is tested with"
        )
    return f"spark/{query}", int(number)


def check_number(messages: Sequence[WriterCommitMessage | None], number: int) -> None:
    for each in messages:
        if isinstance(each, Parts) and each.number != number:
            raise RuntimeError(f"rows of batch {each.number} are in batch {number}")
