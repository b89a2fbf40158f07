"""PIPE-1 PIPE-2 PIPE-3: `format("oncecast")` in Spark itself."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncecast import Policy, blocking
from tests.spark.micro_batches import values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

KEEP = Policy(keep_all=True)
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectService$"


def test_rows_are_put_and_read_as_a_table(
    spark: SparkSession, client: blocking.Client, address: str
) -> None:
    for topic in ("to.a", "to.b"):
        client.create_topic(topic, KEEP)
    written = spark.sql(
        "select string(id) as value, binary('k') as key, map('h', binary('v')) as headers, "
        "if(id % 2 = 0, 'to.a', 'to.b') as topic from range(0, 10, 1, 2)"
    )
    written.write.format("oncecast").option("address", address).mode("append").save()
    frame = spark.read.format("oncecast").options(address=address, topicPattern="to[.].")
    rows = frame.option("includeHeaders", "true").load().orderBy("topic", "offset").collect()
    assert [(row.topic, row.offset) for row in rows] == [
        (topic, offset) for topic in ("to.a", "to.b") for offset in range(5)
    ]
    assert [int(row.value) for row in rows] == [*range(0, 10, 2), *range(1, 10, 2)]
    first = rows[0]
    assert (bytes(first.key), bytes(first.value)) == (b"k", b"0")
    assert {name: bytes(value) for name, value in first.headers.items()} == {"h": b"v"}
    assert first.producer.startswith("spark/")
    assert first.sequence == 0
    assert abs(first.timestamp.timestamp() - time.time()) < 600


def test_errors_reach_the_user_with_their_remedy(spark: SparkSession, address: str) -> None:
    """SVC-7"""
    topic = spark.read.format("oncecast").option("address", address)
    with pytest.raises(Exception, match="unknown option 'topc'; choose from address"):
        topic.options(topc="a").load()
    with pytest.raises(Exception, match=r"topic 'nowhere'.*; create"):
        spark.read.format("oncecast").options(address=address, topics="nowhere").load().collect()


def test_stream_resumes_and_a_repeated_micro_batch_adds_nothing(
    spark: SparkSession, client: blocking.Client, address: str, checkpoint: str
) -> None:
    """As if the driver crashed between the sink's publish and Spark's commit."""
    for topic in ("in", "out"):
        client.create_topic(topic, KEEP)

    def run(first: int) -> None:
        client.put_many("in", [b"%d" % each for each in range(first, first + 50)])
        source = spark.readStream.format("oncecast").options(address=address, topics="in")
        frame = source.options(maxOffsetsPerTrigger="40", subscription="query").load()
        results = frame.selectExpr("concat('seen ', string(value)) as value").repartition(2)
        query = results.writeStream.format("oncecast").options(address=address, topic="out")
        query = query.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        query.start().awaitTermination()

    run(0)
    last = max(Path(checkpoint, "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for each in (last, last.with_name(f".{last.name}.crc")):
        each.unlink(missing_ok=True)
    run(50)
    assert sorted(values(client, "out")) == sorted(b"seen %d" % each for each in range(100))
    (held,) = client.describe("in").subscriptions
    assert (held.name, held.lag <= 40) == ("query", True)


def test_topics_are_read_and_written_through_spark_connect(
    spark: SparkSession, client: blocking.Client, address: str, checkpoint: str
) -> None:
    """PIPE-6: the server runs in the Java of the session, with this process as its client."""
    from pyspark.sql.connect.session import SparkSession as Remote

    for topic in ("far.in", "far.out"):
        client.create_topic(topic, KEEP)
    port = getattr(getattr(spark._jvm, CONNECT), "MODULE$").localPort()
    remote = Remote.builder.remote(f"sc://127.0.0.1:{port}").create()
    try:
        rows = remote.sql("select string(id) as value from range(9)")
        sink = rows.write.format("oncecast").options(address=address, topic="far.in")
        sink.mode("append").save()
        frame = remote.readStream.format("oncecast").options(address=address, topics="far.in")
        query = frame.load().select("value").writeStream.format("oncecast")
        query = query.options(address=address, topic="far.out", checkpointLocation=checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()
        table = remote.read.format("oncecast").options(address=address, topics="far.out").load()
        assert sorted(int(row.value) for row in table.collect()) == list(range(9))
    finally:
        remote.stop()
