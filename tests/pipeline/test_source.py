"""PIPE-1 PIPE-3: topics as a Spark source."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from oncecast import Policy, blocking, from_offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

KEEP = Policy(keep_all=True)


@pytest.fixture
def read(spark: SparkSession, address: str) -> Callable[..., DataFrame]:
    def load(**options: Any) -> DataFrame:
        return spark.read.format("oncecast").options(address=address, **options).load()

    return load


def values(frame: DataFrame) -> list[bytes]:
    return [bytes(row.value) for row in frame.orderBy("topic", "offset").collect()]


def numbers(first: int, until: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, until)]


def fill(client: blocking.Client, topic: str, count: int = 100) -> None:
    client.create_topic(topic, KEEP)
    client.put_many(topic, numbers(0, count))


def test_a_topic_is_a_table(client: blocking.Client, read: Callable[..., DataFrame]) -> None:
    client.create_topic("table", KEEP)
    client.put("table", b"value", key=b"key", headers={"h": b"1"})
    frame = read(topics="table", includeHeaders="true")
    (row,) = frame.collect()
    assert (row.topic, row.offset, row.sequence) == ("table", 0, 0)
    assert (bytes(row.key), bytes(row.value)) == (b"key", b"value")
    assert {name: bytes(value) for name, value in row.headers.items()} == {"h": b"1"}
    assert abs(row.timestamp.timestamp() - time.time()) < 600
    assert "headers" not in read(topics="table").columns


def test_one_topic_is_shared_out_among_tasks(
    client: blocking.Client, read: Callable[..., DataFrame]
) -> None:
    fill(client, "shared")
    frame = read(topics="shared", minPartitions="4", maxRecordsPerPartition="30")
    assert frame.rdd.getNumPartitions() == 4
    assert values(frame) == numbers(0, 100)


def test_several_topics_by_name_and_by_pattern(
    client: blocking.Client, read: Callable[..., DataFrame]
) -> None:
    for topic in ("many.a", "many.b", "many-c"):
        fill(client, topic, 3)
    assert values(read(topics="many.a, many-c")) == numbers(0, 3) * 2
    assert values(read(topicPattern=r"many\..")) == numbers(0, 3) * 2


def test_from_where_to_where(client: blocking.Client, read: Callable[..., DataFrame]) -> None:
    fill(client, "ends")
    ends = {"startingOffsets": '{"ends": 7}', "endingOffsets": '{"ends": 9}'}
    assert values(read(topics="ends", **ends)) == numbers(7, 9)
    assert values(read(topics="ends", startingTimestamp="0")) == numbers(0, 100)
    assert values(read(topics="ends", startingTimestamp=str(int(4e12)))) == []
    assert values(read(topics="ends", endingTimestamp="0")) == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topics": "nowhere"}, "topic 'nowhere'"),
        ({"topics": "bad", "startingOffsets": '{"bad": 101}'}, "it ends before 100"),
        ({"topics": "bad", "endingOffsets": '{"bad": 101}'}, "it ends before 100"),
        ({"topics": "bad", "startingOffsets": '{"other": 1}'}, "which is not read"),
        (
            {"topics": "bad", "startingOffsets": '{"bad": 9}', "endingOffsets": '{"bad": 3}'},
            "the end must not be before the start",
        ),
        ({"topics": "bad", "unknown": "1"}, "option 'unknown' is unknown here"),
    ],
)
def test_bad_input_is_named(
    client: blocking.Client,
    read: Callable[..., DataFrame],
    options: dict[str, str],
    text: str,
) -> None:
    """SVC-7"""
    fill(client, "bad") if not any(each.name == "bad" for each in client.topics()) else None
    with pytest.raises(Exception, match=text):
        read(**options).collect()


def test_node_that_is_away_is_named(spark: SparkSession) -> None:
    frame = spark.read.format("oncecast").options(address="127.0.0.1:1", topics="a").load()
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        frame.collect()


def test_what_retention_has_let_go_ends_the_query_unless_it_may_be_missed(
    client: blocking.Client, read: Callable[..., DataFrame]
) -> None:
    client.subscribe("gone", "s", auto_ack=False).close()
    for number in range(10):
        client.put("gone", b"%d" % number)
    client.seek("gone", "s", from_offset(4))
    start = {"topics": "gone", "startingOffsets": '{"gone": 1}'}
    with pytest.raises(Exception, match="offsets 1 to 3 of topic 'gone' are gone"):
        read(**start).collect()
    assert values(read(**start, failOnDataLoss="false")) == numbers(4, 10)
