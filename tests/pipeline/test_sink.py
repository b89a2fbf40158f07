"""PIPE-1 PIPE-2: topics as a Spark sink, and a stream from topic to topic that loses nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncecast import Policy, blocking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

KEEP = Policy(keep_all=True)


def values(client: blocking.Client, topic: str) -> list[bytes]:
    return [message.value for each in client.scan(topic) for message in each.messages()]


def test_rows_are_put_with_keys_headers_and_topics(
    spark: SparkSession, client: blocking.Client, address: str
) -> None:
    for topic in ("to.a", "to.b"):
        client.create_topic(topic, KEEP)
    frame = spark.sql(
        "select string(id) as value, binary('k') as key, map('h', binary('v')) as headers, "
        "if(id % 2 = 0, 'to.a', 'to.b') as topic from range(0, 10, 1, 3)"
    )
    frame.write.format("oncecast").option("address", address).mode("append").save()
    (first, *_), *_ = ([*each.messages()] for each in client.scan("to.a"))
    assert (first.value, first.key, first.headers) == (b"0", b"k", {"h": b"v"})
    assert sorted(values(client, "to.a")) == [b"0", b"2", b"4", b"6", b"8"]
    assert sorted(values(client, "to.b")) == [b"1", b"3", b"5", b"7", b"9"]


def test_a_batch_that_fails_puts_nothing(
    spark: SparkSession, client: blocking.Client, address: str
) -> None:
    client.create_topic("all.or.none", KEEP)
    frame = spark.sql("select if(id = 99, null, string(id)) as value from range(0, 100, 1, 4)")
    with pytest.raises(Exception, match="column `value` without nulls"):
        frame.write.format("oncecast").options(address=address, topic="all.or.none").mode(
            "append"
        ).save()
    assert values(client, "all.or.none") == []


@pytest.mark.parametrize(
    ("select", "options", "mode", "text"),
    [
        ("1 as number", {"topic": "t"}, "append", "there is no column `value`"),
        ("1 as value", {"topic": "t"}, "append", "column value is int; cast it to binary"),
        ("'a' as value, 1 as more", {"topic": "t"}, "append", "column 'more' is not put"),
        ("'a' as value", {}, "append", "option topic or by a column `topic`"),
        ("'a' as value, 't' as topic", {"topic": "t"}, "append", "by a column `topic`"),
        ("'a' as value", {"topic": "t", "topics": "t"}, "append", "option 'topics' is unknown"),
        ("'a' as value", {"topic": "t"}, "overwrite", "a topic is only appended to"),
    ],
)
def test_bad_input_is_named(
    spark: SparkSession, address: str, select: str, options: dict[str, str], mode: str, text: str
) -> None:
    """SVC-7"""
    frame = spark.sql(f"select {select}")
    with pytest.raises(Exception, match=text):
        frame.write.format("oncecast").options(address=address, **options).mode(mode).save()


def stream(spark: SparkSession, address: str, checkpoint: str, **more: str) -> StreamingQuery:
    frame = spark.readStream.format("oncecast").options(address=address, **more).load()
    counted = frame.selectExpr("concat('seen ', string(value)) as value").repartition(2)
    sink = counted.writeStream.format("oncecast").options(address=address, topic="out")
    return sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


def test_stream_goes_on_where_it_was_and_holds_each_result_once(
    spark: SparkSession, client: blocking.Client, address: str, checkpoint: str
) -> None:
    for topic in ("in", "out"):
        client.create_topic(topic, KEEP)
    for turn in range(3):
        client.put_many("in", [b"%d" % (100 * turn + each) for each in range(100)])
        options = {"topics": "in", "maxOffsetsPerTrigger": "70", "subscription": "query"}
        stream(spark, address, checkpoint, **options).awaitTermination()
    found = values(client, "out")
    assert sorted(found) == sorted(b"seen %d" % each for each in range(300))
    (held,) = client.describe("in").subscriptions
    assert (held.name, held.lag <= 70) == ("query", True)


def test_micro_batch_that_is_run_again_after_its_publish_adds_nothing(
    spark: SparkSession, client: blocking.Client, address: str, checkpoint: str
) -> None:
    """As when the driver dies between the sink's publish and Spark's own commit."""
    for topic in ("again", "out"):
        client.create_topic(topic, KEEP)
    before = len(values(client, "out"))
    client.put_many("again", [b"%d" % each for each in range(50)])
    stream(spark, address, checkpoint, topics="again").awaitTermination()
    assert len(values(client, "out")) == before + 50
    commits = sorted(Path(checkpoint, "commits").glob("[0-9]*"))
    for each in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        each.unlink(missing_ok=True)
    client.put_many("again", [b"%d" % each for each in range(50, 60)])
    stream(spark, address, checkpoint, topics="again").awaitTermination()
    assert sorted(values(client, "out")[before:]) == sorted(b"seen %d" % each for each in range(60))


def test_topic_that_was_made_again_ends_the_query(
    spark: SparkSession, client: blocking.Client, address: str, checkpoint: str
) -> None:
    """PIPE-3"""
    client.create_topic("out", KEEP)

    def run() -> None:
        client.create_topic("remade", KEEP)
        client.put_many("remade", [b"x"] * 5)
        stream(spark, address, checkpoint, topics="remade").awaitTermination()

    run()
    client.delete_topic("remade")
    with pytest.raises(Exception, match="'remade' was deleted and made again"):
        run()
