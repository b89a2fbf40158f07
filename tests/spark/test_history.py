"""PIPE-3: one frame reads the archive and then the topic, with each message once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from oncecast import EARLIEST, Policy, blocking, errors, from_offset
from oncecast.spark.archive import reading
from oncecast.spark.archive.job import archive, here
from oncecast.spark.archive.opening import FORMATS, open_table
from oncecast.spark.history import read_history
from oncecast.spark.ranges import Range
from oncecast.spark.source import BatchReader, StreamReader
from oncecast.spark.source_options import COLUMNS, SourceOptions
from tests.spark.archive_kills import Topics as InMemory
from tests.spark.archive_kills import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

formats = pytest.mark.parametrize("kind", FORMATS)


class Subject:
    """A topic that drops messages, and its archive."""

    def __init__(self, client: blocking.Client, address: str, topic: str, directory: Path) -> None:
        self.client, self.topic, self.directory = client, topic, directory
        self.count = 0
        client.create_topic(topic, Policy())
        client.hold(topic, "reader", from_offset(0))
        self.given = {"address": address, "topics": topic, "archive": str(directory)}

    def put(self, count: int) -> None:
        self.client.put_many(
            self.topic, [b"%d" % each for each in range(self.count, self.count + count)]
        )
        self.count += count

    def archive(self, kind: str | None = None, **more: Any) -> None:
        options = self.options(streaming=False)
        table = open_table(self.directory, kind)
        node: Any = options.node
        archive(node, lambda client, _: self._views(client), table, here, **more)

    def _views(self, client: blocking.Client) -> dict[str, Any]:
        return {self.topic: client.describe(self.topic)}

    def compact(self) -> int:
        return open_table(self.directory).compact(here)

    def drop(self, before: int) -> None:
        self.client.seek(self.topic, "reader", from_offset(before))
        assert self.client.describe(self.topic).first == before

    def options(self, *, streaming: bool, **more: str) -> SourceOptions:
        return SourceOptions.of(self.given | more, streaming=streaming)

    def batch(self, **more: str) -> BatchReader:
        return BatchReader(self.options(streaming=False, **more), COLUMNS)


def offsets_of(reader: BatchReader | StreamReader, pieces: Any) -> list[int]:
    rows = [row for piece in pieces for batch in reader.read(piece) for row in batch.to_pylist()]
    assert all(row["value"] == b"%d" % row["offset"] for row in rows)
    return sorted(row["offset"] for row in rows)


@pytest.fixture
def subject(
    client: blocking.Client, address: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Subject:
    return Subject(client, address, f"history/{request.node.name}", tmp_path / "archive")


@formats
def test_batch_query_reads_each_message_once_during_archiving_and_compaction(
    subject: Subject, kind: str
) -> None:
    subject.put(20)
    subject.archive(kind, rows_max=4)
    subject.drop(15)
    subject.put(10)
    reader = subject.batch(maxRecordsPerPartition="7")
    planned = reader.partitions()
    first, *others = planned
    found = offsets_of(reader, [first])
    subject.put(5)
    subject.archive()
    subject.drop(33)
    found += offsets_of(reader, others[:1])
    assert subject.compact() > 1
    found += offsets_of(reader, others[1:])
    assert sorted(found) == list(range(30))
    assert offsets_of(reader, reader.partitions()) == list(range(35))
    later = subject.batch(startingOffsets=f'{{"{subject.topic}": 3}}')
    assert offsets_of(later, later.partitions()) == list(range(3, 35))


def test_reader_can_finish_files_removed_by_a_compaction(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SMALL_BYTES", 0)
    subject.put(12)
    subject.archive("parquet", rows_max=3)
    view = subject.client.describe(subject.topic)
    rows = reading.read(subject.directory, Range(subject.topic, view.id, 1, 11), ["offset"])
    found = next(rows)["offset"].to_pylist()
    assert subject.compact() == 4
    found += [offset for batch in rows for offset in batch["offset"].to_pylist()]
    assert found == list(range(1, 11))


@formats
def test_stream_reads_each_message_once_during_archiving_and_compaction(
    subject: Subject, kind: str
) -> None:
    subject.put(12)
    subject.archive(kind, rows_max=5)
    subject.drop(11)
    subject.put(3)
    options = subject.options(streaming=True, maxOffsetsPerTrigger="4", subscription="stream")
    reader = StreamReader(options, COLUMNS)
    start, found, batches = reader.initialOffset(), [], []
    steps: Iterator[Callable[[], object]] = iter([subject.archive, subject.compact])
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        next(steps, lambda: None)()
        batches.append((start, end))
        found += offsets_of(reader, reader.partitions(start, end))
        start = end
    assert found == list(range(15))
    reader.stop()
    again = StreamReader(options, COLUMNS)  # the query repeats a micro-batch after a crash
    assert offsets_of(again, again.partitions(*batches[1])) == list(range(4, 8))
    subject.archive()
    subject.drop(15)  # including those that were first read from the topic
    assert offsets_of(again, again.partitions(*batches[-1])) == list(range(12, 15))
    again.stop()


@formats
def test_messages_in_an_unpublished_commit_are_read_once(
    subject: Subject, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject.put(6)
    subject.archive(kind)
    subject.put(4)

    def killed(*_: Any) -> list[str]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(FORMATS[kind], "publish", lambda *_: [])
        before = open_table(subject.directory)
        state = before.state()
        patched.setattr(FORMATS[kind], "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            patched.setattr(type(before), "state", lambda self: state)
            subject.archive()
    reader = subject.batch()
    assert offsets_of(reader, reader.partitions()) == list(range(10))
    subject.archive()
    subject.drop(10)
    assert offsets_of(reader, reader.partitions()) == list(range(10))


def test_gap_between_archive_and_topic_is_reported(subject: Subject) -> None:
    subject.put(5)
    subject.archive()
    subject.put(5)
    subject.drop(8)
    with pytest.raises(errors.DataLost, match=r"offsets 5 to 7 of .* are gone and not archived"):
        subject.batch().partitions()
    skipping = subject.batch(failOnDataLoss="false")
    assert offsets_of(skipping, skipping.partitions()) == [8, 9]


def test_history_begins_after_the_last_gap_in_the_archive(subject: Subject) -> None:
    subject.put(5)
    subject.archive()
    subject.put(5)
    subject.drop(8)
    subject.archive(start=EARLIEST)
    subject.put(2)
    subject.drop(9)
    reader = subject.batch()
    assert offsets_of(reader, reader.partitions()) == [8, 9, 10, 11]


def test_missing_foreign_or_incomplete_archive_is_reported(
    subject: Subject, tmp_path: Path
) -> None:
    """SVC-7"""
    subject.put(3)
    with pytest.raises(
        errors.BadArchive, match=r"does not contain an archive; create it with `oncecast pipe"
    ):
        subject.batch().partitions()
    other = InMemory(other=3)
    other.counts, other.first = {subject.topic: 3}, {subject.topic: 0}
    other.ids = {subject.topic: 7777}
    run(open_table(tmp_path / "other"), other)
    replaced = subject.batch(archive=str(tmp_path / "other"))
    with pytest.raises(errors.TopicReplaced, match="use an archive of the new topic"):
        replaced.partitions()
    subject.archive()
    reader = subject.batch()
    planned = reader.partitions()
    [path] = open_table(subject.directory).files()
    Path(path).unlink()
    with pytest.raises(errors.BadArchive, match="are missing, or disappear"):
        offsets_of(reader, planned)


@pytest.mark.long
def test_spark_batch_and_stream_read_each_message_once(
    spark: SparkSession, subject: Subject, checkpoint: str, tmp_path: Path
) -> None:
    subject.put(20)
    subject.archive("delta")
    subject.drop(15)
    subject.put(10)
    address = subject.given["address"]
    frame = read_history(spark, subject.directory, address=address)
    assert sorted(row.offset for row in frame.select("offset", "value").collect()) == [*range(30)]
    stream = read_history(
        spark, subject.directory, streaming=True, address=address, subscription="spark"
    )
    results = str(tmp_path / "results")
    query = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start(results).awaitTermination()
    found = pq.read_table(results, columns=["offset"])["offset"].to_pylist()
    assert sorted(found) == [*range(30)]
