"""PIPE-1 PIPE-3: the source, used as Spark uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from oncecast import Policy, blocking, errors, from_offset
from oncecast.errors import BadOption, DataLost
from oncecast.spark.ranges import Position
from oncecast.spark.register import OncecastSource
from oncecast.spark.source import BatchReader, StreamReader, as_offset, as_positions
from tests.spark.micro_batches import lower, pickled

pytestmark = pytest.mark.long

KEEP = Policy(keep_all=True)
Load = Callable[..., BatchReader]
Stream = Callable[..., StreamReader]


@pytest.fixture
def load(address: str) -> Load:
    def reader(**options: str) -> BatchReader:
        source = OncecastSource(lower({"address": address, **options}))
        return source.reader(StructType())

    return reader


@pytest.fixture
def stream(address: str) -> Iterator[Stream]:
    made: list[StreamReader] = []

    def reader(**options: str) -> StreamReader:
        source = OncecastSource(lower({"address": address, **options}))
        made.append(source.streamReader(StructType()))
        return made[-1]

    yield reader
    for each in made:
        each.stop()


def rows(reader: BatchReader | StreamReader, pieces: Any = None) -> list[dict[str, Any]]:
    """Return the rows of all tasks, in order."""
    pieces = reader.partitions() if isinstance(reader, BatchReader) else pieces
    batches: list[pa.RecordBatch] = [
        each for piece in pieces for each in pickled(reader).read(pickled(piece))
    ]
    return [row for batch in batches for row in batch.to_pylist()]


def values(reader: BatchReader | StreamReader, pieces: Any = None) -> list[bytes]:
    return [row["value"] for row in rows(reader, pieces)]


def numbers(first: int, until: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, until)]


def fill(client: blocking.Client, topic: str, count: int = 100) -> None:
    client.create_topic(topic, KEEP)
    client.put_many(topic, numbers(0, count))


def test_checkpoint_keeps_its_keys() -> None:
    offset = {"t": {"life": 4, "begin": 2, "next": 7}}
    assert as_positions(offset) == {"t": Position(topic_id=4, begin=2, next=7)}
    assert as_offset(as_positions(offset)) == offset


def test_one_topic_is_split_into_tasks(client: blocking.Client, load: Load) -> None:
    fill(client, "shared")
    reader = load(topics="shared", minPartitions="3", maxRecordsPerPartition="30")
    assert len(reader.partitions()) == 4
    assert values(reader) == numbers(0, 100)


def test_topics_are_selected_by_name_and_by_pattern(client: blocking.Client, load: Load) -> None:
    for topic in ("many.a", "many.b", "many-c"):
        fill(client, topic, 3)
    assert values(load(topics="many.a, many-c")) == numbers(0, 3) * 2
    assert values(load(topicPattern=r"many\..")) == numbers(0, 3) * 2


def test_query_reads_from_start_to_end(client: blocking.Client, load: Load) -> None:
    fill(client, "ends")
    ends = {"startingOffsets": '{"ends": 7}', "endingOffsets": '{"ends": 9}'}
    assert values(load(topics="ends", **ends)) == numbers(7, 9)
    assert values(load(topics="ends", startingOffsets='{"ends": -2}')) == numbers(0, 100)
    assert values(load(topics="ends", startingTimestamp="0")) == numbers(0, 100)
    assert values(load(topics="ends", startingTimestamp=str(int(4e12)))) == []
    assert values(load(topics="ends", endingTimestamp="0")) == []


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"topics": "nowhere"}, errors.NoSuchTopic, "topic 'nowhere'.*; create"),
        (
            {"topics": "bad", "startingOffsets": '{"bad": 101}'},
            errors.OutOfRange,
            r"offset 101 of topic 'bad': the offset .*\(next offset 100\); use an existing",
        ),
        (
            {"topics": "bad", "endingOffsets": '{"bad": 101}'},
            errors.OutOfRange,
            r"offset 101 of topic 'bad': the offset .*\(next offset 100\); use an existing",
        ),
        (
            {"topics": "bad", "startingOffsets": '{"other": 1}'},
            BadOption,
            "offsets name topic 'other', which the query does not read",
        ),
        (
            {"topics": "bad", "startingOffsets": '{"bad": 9}', "endingOffsets": '{"bad": 3}'},
            BadOption,
            "the end is before the start",
        ),
    ],
)
def test_invalid_input_is_rejected(
    client: blocking.Client, load: Load, options: dict[str, str], kind: type[Exception], text: str
) -> None:
    """SVC-7"""
    if not any(each.name == "bad" for each in client.topics()):
        fill(client, "bad")
    with pytest.raises(kind, match=text):
        load(**options).partitions()


def test_stream_of_a_missing_topic_is_rejected(stream: Stream) -> None:
    """SVC-7"""
    with pytest.raises(errors.NoSuchTopic, match=r"topic 'nowhere'.*; create"):
        stream(topics="nowhere").initialOffset()


def test_unreachable_node_is_reported_with_a_remedy(load: Load) -> None:
    """SVC-7"""
    with pytest.raises(errors.NotConnected, match=r"127\.0\.0\.1:1.*oncecast serve"):
        load(address="127.0.0.1:1", timeout="1", topics="a").partitions()


def test_messages_gone_by_retention_fail_the_query_unless_it_may_lose_data(
    client: blocking.Client, load: Load
) -> None:
    client.subscribe("gone", "s", auto_ack=False).close()
    for number in range(10):
        client.put("gone", b"%d" % number)
    client.seek("gone", "s", from_offset(4))
    start = {"topics": "gone", "startingOffsets": '{"gone": 1}'}
    with pytest.raises(
        DataLost, match=r"offsets 1 to 3 of topic 'gone' are gone; .*failOnDataLoss"
    ):
        load(**start).partitions()
    assert values(load(**start, failOnDataLoss="false")) == numbers(4, 10)


def test_messages_gone_during_the_read_fail_the_query_unless_it_may_lose_data(
    client: blocking.Client, load: Load
) -> None:
    """Later messages are still read."""
    client.subscribe("going", "s", auto_ack=False).close()
    client.put_many("going", numbers(0, 10))
    strict, lenient = load(topics="going"), load(topics="going", failOnDataLoss="false")
    (piece,) = strict.partitions()
    client.seek("going", "s", from_offset(4))
    with pytest.raises(DataLost, match="offsets 0 to 3 of topic 'going'"):
        rows_of(strict, piece)
    assert rows_of(lenient, piece) == numbers(4, 10)
    client.delete_topic("going")
    with pytest.raises(DataLost, match="'going'"):
        rows_of(strict, piece)
    assert rows_of(lenient, piece) == []


def rows_of(reader: BatchReader, piece: Any) -> list[bytes]:
    return [value for batch in reader.read(piece) for value in batch.column("value").to_pylist()]


def test_stream_reads_as_much_as_a_trigger_allows(client: blocking.Client, stream: Stream) -> None:
    fill(client, "limited")
    reader = stream(topics="limited", maxOffsetsPerTrigger="30")
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert values(reader, reader.partitions(start, end)) == numbers(0, 30)
    rest = reader.latestOffset(end, ReadAllAvailable())
    assert values(reader, reader.partitions(end, rest)) == numbers(30, 100)
    assert reader.reportLatestOffset() == rest


def test_available_now_ignores_later_messages(client: blocking.Client, stream: Stream) -> None:
    fill(client, "now", 5)
    reader = stream(topics="now")
    reader.prepareForTriggerAvailableNow()
    client.put("now", b"later")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert values(reader, reader.partitions(start, end)) == numbers(0, 5)


def test_new_matching_topics_are_read_from_their_first_message(
    client: blocking.Client, stream: Stream
) -> None:
    fill(client, "new.a", 2)
    reader = stream(topicPattern=r"new\..", startingOffsets="latest")
    start = reader.initialOffset()
    fill(client, "new.b", 3)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert values(reader, reader.partitions(start, end)) == numbers(0, 3)


def test_deleted_topic_fails_the_query_unless_it_may_lose_data(
    client: blocking.Client, stream: Stream
) -> None:
    fill(client, "remade", 5)
    options = {"topicPattern": "remade", "subscription": "query"}
    strict, lenient = stream(**options), stream(**options, failOnDataLoss="false")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ReadAllAvailable())
    client.delete_topic("remade")
    with pytest.raises(DataLost, match="topic 'remade' is gone"):
        strict.latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLost, match="topic 'remade' is gone"):
        strict.partitions(start, end)  # the first call of a restarted query
    assert lenient.partitions(start, end) == []
    lenient.commit(lenient.latestOffset(start, ReadAllAvailable()))
    assert not list(client.topics("remade"))  # to move a cursor creates no topic
    fill(client, "remade", 2)
    created_again = "topic 'remade' was deleted and created again; .*failOnDataLoss"
    with pytest.raises(DataLost, match=created_again):
        strict.latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLost, match=created_again):
        strict.partitions(start, end)
    assert values(lenient, lenient.partitions(start, end)) == []
    now = lenient.latestOffset(start, ReadAllAvailable())
    assert values(lenient, lenient.partitions(start, now)) == numbers(0, 2)


def test_subscription_follows_commits_only(client: blocking.Client, stream: Stream) -> None:
    """So retention waits, also for a query that crashes in its first micro-batch."""
    fill(client, "followed", 10)
    options = {"topics": "followed", "subscription": "query", "startingOffsets": "latest"}
    reader = stream(**options)
    start = reader.initialOffset()
    client.put_many("followed", numbers(10, 15))

    def lag() -> int:
        (found,) = client.describe("followed").subscriptions
        return found.lag

    assert lag() == 5
    stream(**options).initialOffset()
    assert lag() == 5
    reader.commit(reader.latestOffset(start, ReadAllAvailable()))
    assert lag() == 0
    stream(**{**options, "startingOffsets": '{"followed": 3}'}).initialOffset()
    assert lag() == 12
