"""The Spark source reads the partitions of a topic in parallel, and the sink routes by key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql.types import StructType

from oncecast import Policy, blocking
from oncecast.errors import BadOption, NoSuchTopic
from oncecast.spark.register import OncecastSource
from oncecast.spark.source import BatchReader, StreamReader
from oncecast.spark.topics import FEW
from oncecast.wire.partitions import partition_for_key
from tests.spark.micro_batches import lower
from tests.spark.test_sink import write, writer
from tests.spark.test_source import Load, Stream, load, rows, stream, values

__all__ = ["load", "stream"]  # fixtures

pytestmark = pytest.mark.long

KEEP = Policy(keep_all=True)
COLUMNS = "key,value,topic,offset,partition"


@pytest.fixture
def topic(request: pytest.FixtureRequest, client: blocking.Client) -> Iterator[str]:
    """Yield a topic with 4 partitions and 100 messages."""
    name = str(request.node.name)
    client.create_topic(name, KEEP, partitions=4)
    fill(client, name, 0, 100)
    yield name
    client.delete_topic(name)


def fill(client: blocking.Client, topic: str, first: int, until: int) -> None:
    for number in range(first, until):
        client.put_nowait(topic, b"%d" % number, b"key-%d" % (number % 9))
    client.flush()


def check(found: list[dict[str, Any]], topic: str, count: int) -> None:
    assert sorted(int(row["value"]) for row in found) == list(range(count))
    assert {row["topic"] for row in found} == {topic}
    for row in found:
        assert row["partition"] == partition_for_key(row["key"], 4)
    assert len({(row["partition"], row["offset"]) for row in found}) == count


def test_batch_reads_all_partitions_in_parallel_tasks(load: Load, topic: str) -> None:
    """PART-3"""
    reader = load(topics=topic, columns=COLUMNS, minPartitions="4")
    assert len(reader.partitions()) >= 4
    check(rows(reader), topic, 100)
    counted = load(topics=topic, columns="partition,topic,offset")
    assert Counter(row["partition"] for row in rows(counted)).keys() == {0, 1, 2, 3}
    by_pattern = load(topicPattern=topic.replace("_", "."), columns=COLUMNS)
    check(rows(by_pattern), topic, 100)


def test_stream_continues_and_finds_new_partitions(
    stream: Stream, topic: str, client: blocking.Client
) -> None:
    """PART-3"""
    reader = stream(topics=topic, columns=COLUMNS)
    start = reader.initialOffset()
    assert set(start) == {f"{topic}#{number}" for number in range(4)}
    end = latest(reader, start)
    assert len(rows(reader, reader.partitions(start, end))) == 100
    client.set_partitions(topic, 5)
    client.put(f"{topic}#4", b"new")
    after = latest(reader, end)
    assert values(reader, reader.partitions(end, after)) == [b"new"]
    again = stream(topics=topic, columns=COLUMNS)  # a restarted query
    assert values(again, again.partitions(end, after)) == [b"new"]


def latest(reader: StreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def test_offsets_name_partitions_and_times_may_name_the_topic(load: Load, topic: str) -> None:
    """PART-3"""
    start = f'{{"{topic}": -1, "{topic}#1": 2}}'
    found = rows(load(topics=topic, startingOffsets=start, columns=COLUMNS))
    assert {row["partition"] for row in found} == {1}
    assert min(row["offset"] for row in found) == 2
    nested = load(topics=topic, startingOffsets=f'{{"{topic}": {{"1": 2, "0": -1, "2": -1}}}}')
    assert values(nested)
    with pytest.raises(BadOption, match="own offsets"):
        load(topics=topic, startingOffsets=f'{{"{topic}": 3}}').partitions()


def test_many_partitions_are_described(load: Load, stream: Stream, client: blocking.Client) -> None:
    """PART-3"""
    client.create_topic("many", KEEP, partitions=FEW + 4)
    fill(client, "many", 0, 100)
    reader = stream(topics="many")
    start = reader.initialOffset()
    end = latest(reader, start)
    again = stream(topics="many")
    assert len(values(again, again.partitions(start, end))) == 100
    client.delete_topic("many")
    with pytest.raises(NoSuchTopic):
        load(topics="many").partitions()


def test_plain_topic_has_no_partition(load: Load, client: blocking.Client) -> None:
    client.create_topic("one#0", KEEP)
    client.put("one#0", b"x")
    (row,) = rows(load(topics="one#0", columns="topic,partition,value"))
    assert row == {"topic": "one#0", "partition": -1, "value": b"x"}


def test_sink_routes_rows_by_key(client: blocking.Client, address: str, topic: str) -> None:
    """PART-1 PART-3: a repeated write adds nothing."""
    keys = [b"key-%d" % (number % 9) for number in range(50)] + [None] * 10
    data = [b"%d" % number for number in range(100, 160)]
    for _ in range(2):
        app = {"txnAppId": topic, "txnVersion": "1"}
        to = writer("key binary, value binary", False, address=address, topic=topic, **app)
        parts = write(to, 0, key=pa.array(keys, pa.binary()), value=data)
        to.commit([parts])
    source = OncecastSource(lower({"address": address, "topics": topic, "columns": COLUMNS}))
    reader = source.reader(StructType())
    assert isinstance(reader, BatchReader)
    found = rows(reader)
    assert sorted(int(row["value"]) for row in found) == list(range(160))
    for row in found:
        assert row["partition"] == partition_for_key(row["key"] or row["value"], 4)
