"""PIPE-3 PIPE-5: check with real Spark what docs/spark.md says about the source."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from oncecast import Policy, blocking
from oncecast.wire import batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.long

KEEP = Policy(keep_all=True)


def read(spark: SparkSession, address: str, **options: str) -> DataFrame:
    return spark.read.format("oncecast").options(address=address, **options).load()


def test_starting_time_can_be_an_append_time_or_a_message_time(
    spark: SparkSession, client: blocking.Client, address: str
) -> None:
    client.create_topic("eras", KEEP)
    years = (2020, 2024, 2022)
    moments = [int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in years]
    data = batch.encode([b"%d" % year for year in years], timestamps=[at * 10**6 for at in moments])
    client.stage("eras", 0, "part", "eras", len(years), data)
    client.publish_staged("eras", 0, ["part"])
    since = {"topics": "eras", "startingTimestamp": f"{moments[2]}000"}
    assert read(spark, address, **since).count() == 3
    found = read(spark, address, **since, timestampType="message", columns="value").collect()
    assert [bytes(row.value) for row in found] == [b"2024", b"2022"]


def test_schema_chooses_columns_and_types(
    spark: SparkSession, client: blocking.Client, address: str
) -> None:
    client.create_topic("typed", KEEP)
    client.put("typed", b"v", key=b"k", headers={"h": b"1"})
    source = spark.read.format("oncecast").options(address=address, topics="typed")
    rows = source.schema("value string, key string, headers map<string, binary>").load().collect()
    assert [(row.value, row.key, row.headers) for row in rows] == [("v", "k", {"h": b"1"})]
    with pytest.raises(Exception, match="column offset has type int; use bigint"):
        source.schema("offset int").load().collect()


def test_query_fails_if_the_topic_does_not_keep_its_messages(
    spark: SparkSession, client: blocking.Client, address: str, checkpoint: str
) -> None:
    """SVC-7"""
    client.create_topic("unread")
    client.put("unread", b"1")
    with pytest.raises(Exception, match="its 1 messages are gone, because its policy keeps"):
        read(spark, address, topics="unread").count()
    source = spark.readStream.format("oncecast").options(address=address, topics="unread")
    query = source.load().writeStream.format("noop").option("checkpointLocation", checkpoint)
    with pytest.raises(Exception, match="topic 'unread' keeps no messages: it has no policy"):
        query.trigger(availableNow=True).start().awaitTermination()


def test_stream_waits_for_enough_messages(
    spark: SparkSession, client: blocking.Client, address: str, checkpoint: str
) -> None:
    """The first micro-batch does not wait. Topics that match later are read from their start."""
    seen: list[int] = []

    def count(rows: DataFrame, _: int) -> None:
        seen.append(rows.count())

    def put(topic: str, number: int) -> None:
        client.create_topic(topic, KEEP)
        client.put_many(topic, [b"x"] * number)
        running.processAllAvailable()

    client.create_topic("enough.a", KEEP)
    client.put_many("enough.a", [b"x"] * 3)
    options: dict[str, Any] = {"topicPattern": "enough[.].", "minOffsetsPerTrigger": 10}
    source = spark.readStream.format("oncecast").options(address=address, **options)
    query = source.load().writeStream.foreachBatch(count)
    running = query.option("checkpointLocation", checkpoint).start()
    try:
        running.processAllAvailable()
        put("enough.a", 4)
        assert [each for each in seen if each] == [3]
        put("enough.b", 6)
        assert [each for each in seen if each] == [3, 10]
    finally:
        running.stop()
