"""Topics as a Spark sink that is exactly-once, batch and streaming (PIPE-2).

Each task stages its rows, unseen; the driver publishes the parts of the tasks that have won, all in
one command, under the identity (query, batch). Whatever is tried again, by a task or by the whole
query after a crash, changes nothing that was published, and parts that nobody publishes go.
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
IN_FLIGHT = 4  # parts that a task has under way
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
        raise BadRows("there is no column `value`", "name what is to be put: .select(... as value)")
    for name, kind in found.items():
        if name not in WRITTEN:
            allowed = ", ".join(WRITTEN)
            raise BadRows(f"column {name!r} is not put: drop it, or pack it into one of {allowed}")
        if not any(alike(kind, each) for each in WRITTEN[name]):
            allowed = " or ".join(each.simpleString() for each in WRITTEN[name])
            raise BadRows(f"column {name} is {kind.simpleString()}", f"cast it to {allowed}")
    if ("topic" in found) == (options.topic is not None):
        raise BadOption("say where rows go by option topic or by a column `topic`, one of them")


def alike(one: DataType, other: DataType) -> bool:
    return one.simpleString() == other.simpleString()


@dataclass
class Parts(WriterCommitMessage):
    """What one task has staged."""

    source: str
    number: int
    names: tuple[str, ...]
    topics: tuple[str, ...] = ()  # for which each of them is


class Stager:
    """One task's rows on their way: cut into parts, some of them under way at once."""

    def __init__(self, client: blocking.Client, options: SinkOptions, source: str, number: int):
        self._client, self._options = client, options
        self._source, self._number = source, number
        # No other attempt, of this life of the driver or another one, may have parts of this name.
        self._attempt = f"{task().partitionId():05}.{uuid4().hex}"
        self._names: list[str] = []
        self._topics: list[str] = []
        self._pool = ThreadPoolExecutor(IN_FLIGHT)
        self._flying: list[Future[Any]] = []

    def run(self, batches: Iterable[pa.RecordBatch]) -> Parts:
        with self._pool:
            for batch in batches:
                for topic, rows in self._by_topic(batch):
                    for piece in cut(rows):
                        self._stage(topic, piece)
            while self._flying:
                self._flying.pop(0).result()
        return Parts(self._source, self._number, tuple(self._names), tuple(self._topics))

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._options.topic is not None:
            yield self._options.topic, batch
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise BadRows("a row has no topic: fill the column `topic`, or drop such rows")
        for topic in sorted(pc.unique(topics).to_pylist()):
            yield topic, batch.filter(pc.equal(topics, topic))

    def _stage(self, topic: str, rows: pa.RecordBatch) -> None:
        while len(self._flying) >= IN_FLIGHT:
            self._flying.pop(0).result()
        name = f"{self._attempt}.{len(self._names):06}"
        self._names.append(name)
        self._topics.append(topic)
        packed = from_arrow(rows, timestamp=time.time_ns() // 1000, zstd=self._options.zstd)
        stage = self._client.stage
        self._flying.append(
            self._pool.submit(stage, self._source, self._number, name, topic, len(rows), packed)
        )


def task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows are written in a task"
    return context


def cut(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Pieces that are not too large to be sent at once, however unlike their rows are."""
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
    """What a source has to be named with: on a ring of groups, where topics have owners of their
    own, each of its topics; elsewhere none, and all go at once."""
    if not client.ring().processes:
        return [""]
    return sorted({topic for each in parts for topic in each.topics})


def publish(client: blocking.Client, messages: Messages) -> None:
    """On the driver: all that the winners have staged, in the order of the partitions. On a ring
    topic by topic: who dies in between publishes the rest in the next life, and nothing twice."""
    parts = staged(messages)
    for topic in topics_of(client, parts) if parts else ():
        names = sorted(
            name
            for each in parts
            for name, its in zip(each.names, each.topics, strict=True)
            if topic in ("", its)
        )
        client.publish_staged(parts[0].source, parts[0].number, names, topic)


def drop(options: SinkOptions, messages: Messages) -> None:
    parts = staged(messages)
    if parts:
        with options.node.connect() as client:
            for topic in topics_of(client, parts):
                client.drop_staged(parts[0].source, parts[0].number, topic)


class BatchWriter(DataSourceArrowWriter):
    """A batch is written once, as a whole: it is a source of its own with one number."""

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
    """The source is the query, which keeps its id in its checkpoint; the number is the batch's."""

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
    """Which query and batch a task writes for. Spark tells its writers only in this way."""
    query = task().getLocalProperty("sql.streaming.queryId")
    number = task().getLocalProperty("streaming.sql.batchId")
    if not query or not number:
        raise RuntimeError(
            "Spark does not say which query and batch this is, so nothing can be put exactly once; "
            "use a version of pyspark that oncecast is tested with"
        )
    return f"spark/{query}", int(number)


def check_number(messages: Sequence[WriterCommitMessage | None], number: int) -> None:
    for each in messages:
        if isinstance(each, Parts) and each.number != number:
            raise RuntimeError(f"rows of batch {each.number} come with batch {number}")
