"""A Spark sink with exactly-once semantics, batch and streaming (PIPE-2).

Each task stages its rows, so that readers do not see them yet. The driver publishes the parts of
the successful tasks in one command, with the identity (query, batch). A repeated task, or a query
that is repeated after a crash, does not change published rows. Unpublished parts are dropped.

The command contains a digest of the batch, so a query that continues from an older copy of its
checkpoint fails. If the checkpoint is a local directory of the driver, the digest covers
Spark's own record of the batch. This record is the same in each replay. Otherwise the digest is a
sum over the rows.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from oncecast.client import blocking
from oncecast.errors import (
    BadOption,
    BadRows,
    Denied,
    NoSuchTopic,
    NotKept,
    OldNumber,
    OncecastError,
    OtherContent,
    TakenOver,
    TopicExists,
)
from oncecast.spark.options import SinkOptions
from oncecast.wire.batch_arrow import from_arrow
from oncecast.wire.partitions import is_partition, partition_for_key, partition_topic

PART_BYTES = 4 << 20
PART_ROWS = 100_000
IN_FLIGHT = 4  # maximum parts in flight per task
WRITTEN: dict[str, tuple[DataType, ...]] = {
    "value": (BinaryType(), StringType()),
    "key": (BinaryType(), StringType()),
    "headers": (
        MapType(StringType(), BinaryType()),
        ArrayType(StructType().add("key", StringType()).add("value", BinaryType())),
    ),
    "topic": (StringType(),),
    "timestamp": (TimestampType(),),
}
# Frames read from topics or from Kafka have these columns. The sink ignores them, because the node
# assigns the values.
IGNORED = ("offset", "producer", "sequence", "partition", "timestampType")
NEWEST = (
    "continue from the newest checkpoint; to write the rows from here on again, set option "
    "txnAppId to a new name"
)
RECORD = (
    "ask an administrator for permission to put to topic {!r}, whose owner compares the batches, "
    "or set option topic"
)
REMEDIES: dict[type[OncecastError], str] = {
    OldNumber: f"the checkpoint is an older copy or a clone: {NEWEST}",
    OtherContent: (
        f"the checkpoint is an older copy or a clone: {NEWEST}; if it is the newest one and the "
        "query is not deterministic, set option replay to skip"
    ),
    TakenOver: "stop all but one of the queries with this checkpoint or txnAppId",
    NotKept: (
        "give the topic a policy that keeps messages, subscribe to it first, or set option "
        "failOnDataLoss to false"
    ),
    NoSuchTopic: "create it, or set option createTopics to true",
}


def check_schema(schema: StructType, options: SinkOptions) -> None:
    found = {field.name: field.dataType for field in schema.fields}
    if "value" not in found:
        raise BadRows("column `value` is missing", "add it with .select(... as value)")
    for name, kind in found.items():
        if name in IGNORED:
            continue
        if name not in WRITTEN:
            allowed = ", ".join(WRITTEN)
            raise BadRows(f"column {name!r} is not supported", f"drop it, or use one of {allowed}")
        if not any(alike(kind, each) for each in WRITTEN[name]):
            allowed = " or ".join(each.simpleString() for each in WRITTEN[name])
            raise BadRows(f"column {name} has type {kind.simpleString()}", f"cast it to {allowed}")
    if "topic" not in found and options.topic is None:
        raise BadOption("the rows have no topic", "set option topic, or add a column `topic`")


def alike(one: DataType, other: DataType) -> bool:
    return one.simpleString() == other.simpleString()


class Identity(NamedTuple):
    """A batch's source and number, and the query run that writes it."""

    source: str
    number: int
    run: str = ""


@dataclass
class Parts(WriterCommitMessage):
    """The parts that one task has staged."""

    source: str
    number: int
    names: tuple[str, ...]
    topics: tuple[str, ...] = ()  # the topic of each part
    run: str = ""
    sums: dict[str, tuple[int, int]] | None = None  # count and sum by topic, or None if not needed

    @property
    def identity(self) -> Identity:
        return Identity(self.source, self.number, self.run)


@contextmanager
def explained() -> Iterator[None]:
    """Replace the remedies of refusals with remedies that suit a Spark query."""
    try:
        yield
    except OncecastError as error:
        if type(error) not in REMEDIES:
            raise
        raise error.reworded(remedy=REMEDIES[type(error)]) from None


def prepare(client: blocking.Client, topic: str, options: SinkOptions) -> int:
    """Create the topic if it is missing. Raise NotKept if it would drop the rows.

    Return the number of its partitions, or 0 for a plain topic. If the user may not see the topic,
    only the publish checks this.
    """
    try:
        found = client.describe(topic)
    except Denied:
        return 0
    except NoSuchTopic:
        if not options.create:
            raise
        with suppress(TopicExists):  # another client has just created it
            client.create_topic(topic, options.policy)
        return 0
    if options.keep and not (found.policy.retains or found.subscriptions):
        raise NotKept(topic)
    return found.partitions


class Stager:
    """Stage the rows of one task in parts, with several parts in flight."""

    def __init__(
        self, client: blocking.Client, options: SinkOptions, identity: Identity, *, sums: bool
    ) -> None:
        self._client, self._options, self._identity = client, options, identity
        self._sums: dict[str, tuple[int, int]] | None = {} if sums else None
        self._prepared: dict[str, int] = {}  # the number of partitions of each topic
        # The name is unique among all attempts, even after the driver restarts.
        self._attempt = f"{task().partitionId():05}.{uuid4().hex}"
        self._names: list[str] = []
        self._topics: list[str] = []
        self._pool = ThreadPoolExecutor(IN_FLIGHT)
        self._in_flight: list[Future[Any]] = []

    def run(self, batches: Iterable[pa.RecordBatch]) -> Parts:
        with self._pool, explained():
            for batch in batches:
                for topic, rows in self._by_topic(batch):
                    if topic not in self._prepared:
                        self._prepared[topic] = prepare(self._client, topic, self._options)
                    for where, some in routed(topic, rows, self._prepared[topic]):
                        for piece in cut(some):
                            self._stage(topic, where, piece)
            while self._in_flight:
                self._in_flight.pop(0).result()
        source, number, run = self._identity
        parts = (tuple(self._names), tuple(self._topics))
        return Parts(source, number, *parts, run, self._sums)

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._options.topic is not None:
            yield self._options.topic, batch
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise BadRows("a row has no topic", "fill in the `topic` column or drop those rows")
        for topic in sorted(pc.unique(topics).to_pylist()):
            yield topic, batch.filter(pc.equal(topics, topic))

    def _stage(self, topic: str, where: str, rows: pa.RecordBatch) -> None:
        """Stage rows for the topic `where`, which is `topic` or one of its partitions."""
        while len(self._in_flight) >= IN_FLIGHT:
            self._in_flight.pop(0).result()
        if self._sums is not None:
            self._sums[topic] = added(self._sums.get(topic, (0, 0)), summed(rows))
        name = f"{self._attempt}.{len(self._names):06}"
        self._names.append(name)
        self._topics.append(where)
        packed = from_arrow(rows, timestamp=time.time_ns() // 1000, zstd=self._options.zstd)
        source, number, run = self._identity
        part = (source, number, name, where, len(rows), packed)
        self._in_flight.append(self._pool.submit(self._client.stage, *part, run=run))


def routed(
    topic: str, rows: pa.RecordBatch, partitions: int
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows for each partition of a topic.

    Keys decide as in `Client.put`. A row without a key goes to the partition of its value, so that
    a repeated batch is divided in the same way.
    """
    if not partitions:
        yield topic, rows
        return
    values = rows.column("value").cast(pa.binary()).to_pylist()
    keys: list[bytes | None] = [None] * len(rows)
    if "key" in rows.schema.names:
        keys = rows.column("key").cast(pa.binary()).to_pylist()
    chosen = [
        partition_for_key(key or value or b"", partitions)
        for key, value in zip(keys, values, strict=True)
    ]
    column = pa.array(chosen, pa.int32())
    for partition in sorted(set(chosen)):
        yield partition_topic(topic, partition), rows.filter(pc.equal(column, partition))


def task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows must be written in a task"
    return context


def cut(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield pieces of the rows that are small enough for one message."""
    half = len(rows) // 2
    if half and (rows.nbytes > PART_BYTES or len(rows) > PART_ROWS):
        yield from cut(rows.slice(0, half))
        yield from cut(rows.slice(half))
    elif len(rows):
        yield rows


def summed(rows: pa.RecordBatch) -> tuple[int, int]:
    """Return the number of rows, and the sum of their key and value checksums.

    The sum depends neither on the order of the rows nor on their partitions.
    """
    values = rows.column("value").cast(pa.binary()).to_pylist()
    if "key" not in rows.schema.names:
        return len(rows), sum(map(zlib.crc32, values))
    keys = rows.column("key").cast(pa.binary()).to_pylist()
    seeds = [1 if key is None else zlib.crc32(key) for key in keys]
    return len(rows), sum(map(zlib.crc32, values, seeds))


def added(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def digest_of_rows(parts: Iterable[Parts], topic: str) -> bytes:
    """Return the digest of the rows for this topic, or for all topics if it is empty."""
    total: dict[str, tuple[int, int]] = {}
    for each in parts:
        for name, found in (each.sums or {}).items():
            if topic in ("", name) or is_partition(topic, name):
                total[name] = added(total.get(name, (0, 0)), found)
    text = json.dumps(sorted(total.items()))
    return b"rows" + sha256(text.encode()).digest()[:16]


class OffsetsLog(NamedTuple):
    """Spark's records of a query's batches, in a checkpoint that is a local directory."""

    directory: str
    query: str

    @classmethod
    def of(cls, checkpoint: str | None) -> OffsetsLog | None:
        """Return the log, or None if the checkpoint is not a local directory."""
        directory = (checkpoint or "").removeprefix("file://").removeprefix("file:")
        try:
            found = json.loads(Path(directory, "metadata").read_text())
        except (OSError, ValueError):
            return None
        return cls(directory, str(found.get("id")))

    def digest(self, number: int) -> bytes:
        """Return the digest of Spark's record of a batch, which is the same in each replay."""
        record = Path(self.directory, "offsets", str(number)).read_bytes()
        return b"offsets" + sha256(record).digest()[:16]


Messages = Sequence[WriterCommitMessage | None]


def reported(messages: Messages) -> list[Parts]:
    """Return the parts from all successful tasks, including tasks without rows."""
    return [each for each in messages if isinstance(each, Parts)]


def topics_of(
    client: blocking.Client, options: SinkOptions, identity: Identity, parts: Iterable[Parts]
) -> list[str]:
    """Return the topics that each need their own command.

    Outside a ring the list is [""], because one command covers all topics. On a ring, topics have
    different owners, so each needs its own command. The first topic of the list then has the name
    of the source. It receives no rows, but its owner compares all batches of the source.
    """
    if not client.ring().processes:
        return [""]
    found = sorted({topic for each in parts for topic in each.topics})
    if options.topic is not None and found in ([], [options.topic]):
        return [options.topic]
    return [identity.source, *found] if identity.run else found


def publish(
    client: blocking.Client, options: SinkOptions, parts: list[Parts], digest: bytes = b""
) -> None:
    """Publish the parts from successful tasks, in partition order.

    Batches without rows are published too, because a query that continues from an older checkpoint
    may have no rows where the published batch had some. On a ring, each topic needs its own
    command. A driver that crashes in between publishes the rest after its restart, and nothing
    twice. `digest` is the batch's digest, if it is known.
    """
    if not parts:
        return
    identity, done = parts[0].identity, list[str]()
    for topic in topics_of(client, options, identity, parts):
        names = sorted(
            name
            for each in parts
            for name, part_topic in zip(each.names, each.topics, strict=True)
            if topic in ("", part_topic)
        )
        source, number, run = identity
        rows_of = "" if topic == source else topic
        content = (digest or digest_of_rows(parts, rows_of)) if options.check else b""
        keep = options.keep
        try:
            client.publish_staged(source, number, names, topic, run=run, digest=content, keep=keep)
        except OncecastError as error:
            if topic == source and isinstance(error, Denied):
                raise error.reworded(remedy=RECORD.format(topic)) from None
            if not done:
                raise
            raise error.within(f"the rows for {', '.join(done)} are already published") from None
        done += [topic] if names else []


def drop(options: SinkOptions, messages: Messages) -> None:
    parts = [each for each in reported(messages) if each.names]
    if parts:
        source, number, run = identity = parts[0].identity
        with options.node.connect() as client:
            for topic in topics_of(client, options, identity, parts):
                client.drop_staged(source, number, topic, run=run)


class BatchWriter(DataSourceArrowWriter):
    """Write a batch once. With txnAppId and txnVersion, a repeated write adds nothing.

    Without these options, each write is its own source.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options, unique = options, uuid4().hex
        if options.app is None or options.version is None:
            self._identity = Identity(f"spark/{unique}", 0)
        else:
            source = f"spark/{options.app}:{options.topic or ''}"  # one source per written topic
            self._identity = Identity(source, options.version, unique)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Parts:
        sums = self._options.check and self._options.app is not None
        with self._options.node.connect() as client:
            return Stager(client, self._options, self._identity, sums=sums).run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        options, parts = self._options, reported(messages)
        with options.node.connect(patient=True) as client, explained():
            publish(client, options, parts)
            if options.app is None:
                for topic in topics_of(client, options, self._identity, parts):
                    client.close_source(self._identity.source, topic)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        drop(self._options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Write micro-batches.

    The source is the id of the query, or the option txnAppId. The number is the id of the batch.
    Spark creates a writer for each batch and another writer for its commit, both on the driver.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._log = OffsetsLog.of(options.checkpoint)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Parts:
        query, identity = identify(self._options.app)
        recorded = self._log is not None and self._log.query == query
        sums = self._options.check and not recorded
        with self._options.node.connect(patient=True) as client:
            return Stager(client, self._options, identity, sums=sums).run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        check_number(messages, batchId)
        parts = reported(messages)
        digest = b""
        if self._log is not None and all(each.sums is None for each in parts):
            digest = self._log.digest(batchId)
        with self._options.node.connect(patient=True) as client, explained():
            publish(client, self._options, parts, digest)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        drop(self._options, messages)


def identify(app: str | None) -> tuple[str, Identity]:
    """Return the query's id and the batch's identity, read from this task's properties."""
    query = task().getLocalProperty("sql.streaming.queryId")
    number = task().getLocalProperty("streaming.sql.batchId")
    run = task().getLocalProperty("spark.jobGroup.id")
    if not query or not number or not run:
        raise RuntimeError(
            "Spark does not provide the query, batch and run ids that exactly-once writes need; "
            "use a version of pyspark that oncecast is tested with"
        )
    return query, Identity(f"spark/{app or query}", int(number), run)


def check_number(messages: Sequence[WriterCommitMessage | None], number: int) -> None:
    for each in messages:
        if isinstance(each, Parts) and each.number != number:
            raise RuntimeError(f"batch {number} contains rows of batch {each.number}")
