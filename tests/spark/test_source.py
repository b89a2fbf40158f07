"""PIPE-1 PIPE-3: use the source as Spark does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import IntegerType, StringType, StructType

from oncecast import Policy, blocking, errors, from_offset
from oncecast.errors import BadOption, DataLost
from oncecast.spark.ranges import Position
from oncecast.spark.register import OncecastSource
from oncecast.spark.source import BatchReader, StreamReader, as_offset, as_positions
from oncecast.spark.source_options import SourceOptions
from oncecast.wire import batch
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


def test_offset_keys_in_the_checkpoint_do_not_change() -> None:
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


def test_query_reads_from_its_start_to_its_end(client: blocking.Client, load: Load) -> None:
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
            "the offsets include topic 'other', which the query does not read",
        ),
        (
            {"topics": "bad", "startingOffsets": '{"bad": 9}', "endingOffsets": '{"bad": 3}'},
            BadOption,
            "is before the start",
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


def test_stream_from_a_missing_topic_is_rejected(stream: Stream) -> None:
    """SVC-7"""
    with pytest.raises(errors.NoSuchTopic, match=r"topic 'nowhere'.*; create"):
        stream(topics="nowhere").initialOffset()


def test_unreachable_node_is_reported_with_a_remedy(load: Load) -> None:
    """SVC-7"""
    with pytest.raises(errors.NotConnected, match=r"127\.0\.0\.1:1.*oncecast serve"):
        load(address="127.0.0.1:1", timeout="1", topics="a").partitions()


def test_messages_deleted_by_retention_fail_the_query_unless_it_may_lose_data(
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


def test_messages_deleted_during_the_read_fail_the_query_unless_it_may_lose_data(
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


def test_stream_reads_as_many_messages_as_its_trigger_allows(
    client: blocking.Client, stream: Stream
) -> None:
    fill(client, "limited")
    reader = stream(topics="limited", maxOffsetsPerTrigger="30")
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert values(reader, reader.partitions(start, end)) == numbers(0, 30)
    rest = reader.latestOffset(end, ReadAllAvailable())
    assert values(reader, reader.partitions(end, rest)) == numbers(30, 100)
    report = reader.reportLatestOffset()
    assert report.pop("") == {"behind": 0, "seconds": 0.0}
    assert as_offset(as_positions(report)) == rest


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
    with pytest.raises(DataLost, match="topic 'remade' no longer exists"):
        strict.latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLost, match="topic 'remade' no longer exists"):
        stream(**options).partitions(start, end)  # the first call of a restarted query
    assert lenient.partitions(start, end) == []
    assert lenient.latestOffset(start, ReadAllAvailable()) == start
    assert not list(client.topics("remade"))  # moving a cursor creates no topic
    fill(client, "remade", 2)
    created_again = "topic 'remade' was deleted and recreated; .*failOnDataLoss"
    with pytest.raises(DataLost, match=created_again):
        strict.latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLost, match=created_again):
        stream(**options).partitions(start, end)
    assert values(lenient, lenient.partitions(start, end)) == []
    now = lenient.latestOffset(start, ReadAllAvailable())
    assert values(lenient, lenient.partitions(start, now)) == numbers(0, 2)


def test_query_that_may_lose_data_restarts_without_a_deleted_topic(
    client: blocking.Client, stream: Stream
) -> None:
    for topic in ("left.a", "left.b"):
        fill(client, topic, 3)
    options = {"topics": "left.a,left.b", "subscription": "query"}
    first = stream(**options)
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    client.delete_topic("left.a")
    client.put_many("left.b", numbers(3, 5))
    with pytest.raises(DataLost, match=r"topic 'left\.a' no longer exists"):
        stream(**options).latestOffset(end, ReadAllAvailable())
    lenient = stream(**options, failOnDataLoss="false")
    lenient.prepareForTriggerAvailableNow()
    assert values(lenient, lenient.partitions(start, end)) == numbers(0, 3)
    now = lenient.latestOffset(end, ReadAllAvailable())
    assert values(lenient, lenient.partitions(end, now)) == numbers(3, 5)
    assert not list(client.topics("left.a"))


def test_topic_added_to_the_option_is_read_from_its_first_message(
    client: blocking.Client, stream: Stream
) -> None:
    fill(client, "added.a", 3)
    old = stream(topics="added.a", startingOffsets="latest", subscription="query")
    end = old.latestOffset(old.initialOffset(), ReadAllAvailable())
    options = {"topics": "added.a,added.b", "startingOffsets": '{"added.a": 0}'}
    with pytest.raises(errors.NoSuchTopic, match=r"'added\.b'.*; create"):
        stream(**options).latestOffset(end, ReadAllAvailable())
    lenient = stream(**options, failOnDataLoss="false")
    assert lenient.latestOffset(end, ReadAllAvailable()) == end
    client.subscribe("added.b", "other", auto_ack=False).close()
    client.put_many("added.b", numbers(0, 4))
    reader = stream(**options, subscription="query")
    now = reader.latestOffset(end, ReadAllAvailable())
    assert client.unsubscribe(
        "added.b", "other"
    )  # from here on, only the query's subscription keeps messages
    assert values(reader, reader.partitions(end, now)) == numbers(0, 4)


def test_error_names_a_topic_that_was_removed_from_the_option(
    client: blocking.Client, stream: Stream
) -> None:
    for topic in ("less.a", "less.b"):
        fill(client, topic, 1)
    end = stream(topics="less.a,less.b").initialOffset()
    text = "topic 'less.b' is in the checkpoint, but not in option topics; .*failOnDataLoss"
    with pytest.raises(DataLost, match=text):
        stream(topics="less.a").latestOffset(end, ReadAllAvailable())
    lenient = stream(topics="less.a", failOnDataLoss="false")
    assert lenient.latestOffset(end, ReadAllAvailable()).keys() == end.keys()


def test_subscription_follows_completed_micro_batches_only(
    client: blocking.Client, stream: Stream
) -> None:
    """Retention waits for the query, even if it crashes in its first micro-batch."""
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
    end = reader.latestOffset(start, ReadAllAvailable())
    assert lag() == 5
    assert reader.latestOffset(end, ReadAllAvailable()) == end  # the micro-batch is done
    assert lag() == 0
    stream(**{**options, "startingOffsets": '{"followed": 3}'}).initialOffset()
    assert lag() == 12


def test_many_topics_are_planned_with_few_calls_and_read_by_few_tasks(
    client: blocking.Client, load: Load, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"lots.{number:02}" for number in range(30)]
    for topic in names:
        fill(client, topic, 2)
    calls: list[str] = []
    for name in ("describe", "locate"):
        monkeypatch.setattr(blocking.Client, name, lambda *_, name=name: calls.append(name))
    for options in ({"topicPattern": "lots[.].*"}, {"topics": ",".join(names)}):
        reader = load(**options)
        assert len(reader.partitions()) == 1
        assert values(reader) == numbers(0, 2) * 30
        streaming = stream(**options)
        end = streaming.latestOffset(streaming.initialOffset(), ReadAllAvailable())
        assert len(streaming.partitions(streaming.initialOffset(), end)) == 1
    assert calls == []


def test_micro_batch_waits_for_enough_messages_or_for_the_delay(
    client: blocking.Client, address: str
) -> None:
    fill(client, "patient", 3)
    options = {"address": address, "topics": "patient", "minOffsetsPerTrigger": "4"}
    found = SourceOptions.of(lower({**options, "maxTriggerDelay": "10m"}), streaming=True)
    now = 0.0
    reader = StreamReader(found, {"value": "binary"}, clock=lambda: now)
    with ExitStack() as stack:
        stack.callback(reader.stop)
        limit = reader.getDefaultReadLimit()
        start = reader.latestOffset(reader.initialOffset(), limit)
        assert start["patient"]["next"] == 3  # the first micro-batch does not wait
        client.put_many("patient", numbers(0, 3))
        assert reader.latestOffset(start, limit) == start
        now = 599.0
        assert reader.latestOffset(start, limit) == start
        assert reader.latestOffset(start, ReadAllAvailable())["patient"]["next"] == 6
        client.put("patient", b"enough")
        assert reader.latestOffset(start, limit)["patient"]["next"] == 7
        end = reader.latestOffset(start, limit)
        client.put("patient", b"late")
        now = 1200.0
        assert reader.latestOffset(end, limit)["patient"]["next"] == 8


def test_available_now_does_not_wait_for_enough_messages(
    client: blocking.Client, stream: Stream
) -> None:
    fill(client, "hasty", 1)
    reader = stream(topics="hasty", minOffsetsPerTrigger="9")
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    client.put("hasty", b"1")
    reader.prepareForTriggerAvailableNow()
    now = reader.latestOffset(end, reader.getDefaultReadLimit())
    assert values(reader, reader.partitions(end, now)) == numbers(1, 2)


def test_report_shows_query_lag(client: blocking.Client, stream: Stream) -> None:
    """OPS-1"""
    for topic in ("late.a", "late.b"):
        fill(client, topic, 4)
    before = time.time()
    reader = stream(topicPattern="late[.].", maxOffsetsPerTrigger="2")
    start = reader.initialOffset()
    reader.latestOffset(start, reader.getDefaultReadLimit())
    report = reader.reportLatestOffset()
    assert {name: each["behind"] for name, each in report.items()} == {
        "late.a": 3,
        "late.b": 3,
        "": 6,
    }
    assert all(0 < each["seconds"] < time.time() - before + 60 for each in report.values())


def test_time_options_can_use_append_times_or_message_times(
    client: blocking.Client, load: Load, stream: Stream
) -> None:
    """Message times may be in any order."""
    client.create_topic("dated", KEEP)
    client.put("dated", b"now")
    years = [2020, 2023, 2021, 2024, 2022]
    moments = [int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in years]
    old = batch.encode([b"%d" % year for year in years], timestamps=[at * 10**6 for at in moments])
    one = batch.encode([b"1999"], timestamps=915148800 * 10**6)
    for number, data, count in ((0, old, 5), (1, one, 1)):
        client.stage("dates", number, "part", "dated", count, data)
        client.publish_staged("dates", number, ["part"])
    span = {"startingTimestamp": f"{moments[2]}000", "endingTimestamp": f"{moments[3]}000"}
    assert values(load(topics="dated", startingTimestamp=span["startingTimestamp"])) == [
        b"now", *(b"%d" % year for year in years), b"1999",
    ]  # fmt: skip
    by_message = {"topics": "dated", "timestampType": "message"}
    assert values(load(**by_message, **span)) == [b"2023", b"2021", b"2022"]
    assert values(load(**by_message, **span, columns="value")) == [b"2023", b"2021", b"2022"]
    reader = stream(**by_message, startingTimestamp=span["startingTimestamp"])
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    found = values(reader, reader.partitions(start, end))
    assert found == [b"now", b"2023", b"2021", b"2024", b"2022"]


def test_start_and_end_can_be_a_time_for_each_topic(client: blocking.Client, load: Load) -> None:
    for topic in ("timed.a", "timed.b"):
        fill(client, topic, 2)
    names = {"topics": "timed.a,timed.b"}
    late = '{"timed.a": {"0": 4000000000000}, "timed.b": 0}'
    assert values(load(**names, startingOffsetsByTimestamp=late)) == numbers(0, 2)
    assert values(load(**names, endingOffsetsByTimestamp='{"timed.a": 0}')) == numbers(0, 2)
    strict = load(
        **names, startingOffsetsByTimestamp=late, startingOffsetsByTimestampStrategy="error"
    )
    with pytest.raises(BadOption, match=r"topic 'timed\.a' has no message since its starting time"):
        strict.partitions()


def test_query_reads_only_the_chosen_columns(
    client: blocking.Client, load: Load, address: str
) -> None:
    client.create_topic("slim", KEEP)
    client.put("slim", b"one", key=b"k", headers={"h": b"v"})
    client.put("slim", b"two")
    assert rows(load(topics="slim", columns="value,offset")) == [
        {"value": b"one", "offset": 0},
        {"value": b"two", "offset": 1},
    ]
    (first, _) = rows(load(topics="slim", columns="headers", includeHeaders="array"))
    assert first == {"headers": [{"key": "h", "value": b"v"}]}
    (first, _) = rows(load(topics="slim", columns="headers"))
    assert first == {"headers": [("h", b"v")]}
    source = OncecastSource({"address": address, "topics": "slim"})
    chosen = StructType().add("value", StringType()).add("key", StringType())
    assert rows(source.reader(chosen)) == [
        {"value": "one", "key": "k"},
        {"value": "two", "key": None},
    ]
    for wrong, text in (
        ("colour", "column 'colour' does not exist"),
        ("offset", "use bigint"),
    ):
        with pytest.raises(BadOption, match=text):
            source.reader(StructType().add(wrong, IntegerType()))


def test_offsets_and_topics_are_counted_without_reading_messages(
    client: blocking.Client, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("counted.a", "counted.b"):
        fill(client, topic, 3)
    reader = load(topicPattern="counted[.].", columns="topic,offset")
    (piece,) = reader.partitions()
    monkeypatch.setattr(blocking, "connect", None)  # a task needs no node
    found = [row for each in reader.read(piece) for row in each.to_pylist()]
    assert found == [
        {"topic": topic, "offset": offset}
        for topic in ("counted.a", "counted.b")
        for offset in range(3)
    ]


def test_query_fails_if_the_topic_keeps_no_messages(
    client: blocking.Client, load: Load, stream: Stream
) -> None:
    """SVC-7"""
    client.create_topic("fleeting")
    assert values(load(topics="fleeting")) == []
    with pytest.raises(
        DataLost, match=r"topic 'fleeting' keeps no messages: .*; set the option `subscription`"
    ):
        stream(topics="fleeting").initialOffset()
    stream(topics="fleeting", failOnDataLoss="false").initialOffset()
    client.put_many("fleeting", numbers(0, 7))
    with pytest.raises(DataLost, match="topic 'fleeting' is empty: its 7 messages are gone, bec"):
        load(topics="fleeting").partitions()
    assert values(load(topics="fleeting", failOnDataLoss="false")) == []
    assert values(load(topics="fleeting", startingOffsets='{"fleeting": 7}')) == []
    stream(topics="fleeting", subscription="query").initialOffset()
    client.put_many("fleeting", numbers(7, 9))
    assert values(load(topics="fleeting")) == numbers(7, 9)
