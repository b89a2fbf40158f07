"""Test Fetch and ListOffsets: exact scans, exact responses (KAF-1, KAF-4)."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.client.session import local
from oncecast.kafka import messages as m
from oncecast.kafka.errors import Code
from oncecast.kafka.events import Disconnected
from oncecast.wire import batch, errors
from oncecast.wire import commands as do
from oncecast.wire.batch_layout import KAFKA
from oncecast.wire.frames import Chunk, Scan, Scanned
from oncecast.wire.kafka_records import Record, check, decode, encode
from tests.kafka.front_desk import FrontDesk, desk

RECORDS = [Record(1000, b"k", b"one", ()), Record(2000, None, b"two", ())]


def fetch(
    *offsets: int, topic: str = "t", wait: int = 500, least: int = 1, most: int = 1 << 20
) -> m.FetchRequest:
    """Return a fetch of one topic for each offset."""
    topics = tuple(
        m.FetchTopic(
            topic=f"{topic}{number}",
            partitions=(
                m.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000),
            ),
        )
        for number, offset in enumerate(offsets)
    )
    return m.FetchRequest(max_wait_ms=wait, min_bytes=least, max_bytes=most, topics=topics)


def chunk(offset: int, skip: int = 0) -> Chunk:
    data = batch.wrap(encode(RECORDS), format=KAFKA, count=2, timestamp=0)
    return Chunk(offset, skip, 2 - skip, "p", 0, data)


def scanned(offset: int, *chunks: Chunk, first: int = 0, end: int = 9) -> Scanned:
    return Scanned(0, 1, first, end, offset, chunks)


def parts(front: FrontDesk) -> list[m.FetchResponsePartition]:
    reply: Any = front.reply()
    return [each for topic in reply.responses for each in topic.partitions]


def test_fetch_from_one_partition_is_a_single_waiting_scan() -> None:
    """KAF-1: a long poll costs the node nothing while it waits."""
    front = desk()
    front.send(fetch(7))
    assert front.commands == [Scan(0, "t0", do.FromOffset(7), bytes=1000, wait_ms=500)]
    front.answer(scanned(7, chunk(7)))
    (part,) = parts(front)
    assert (part.error_code, part.high_watermark, part.last_stable_offset) == (0, 9, 9)
    assert part.records is not None
    assert check(part.records).base_offset == 7
    assert decode(part.records) == RECORDS


def test_fetch_from_the_middle_of_a_batch_returns_the_whole_batch() -> None:
    """Kafka clients skip records before the offset that they asked for."""
    front = desk()
    front.send(fetch(8))
    front.answer(scanned(8, chunk(8, skip=1)))
    (part,) = parts(front)
    assert part.records is not None
    assert check(part.records).base_offset == 7


def test_native_messages_are_converted() -> None:
    """KAF-4"""
    front = desk()
    front.send(fetch(0))
    data = batch.encode([b"a", b"b"], timestamps=5_000_000, keys=[b"k", None])
    front.answer(scanned(0, Chunk(0, 0, 2, "p", 0, data)))
    (part,) = parts(front)
    assert part.records is not None
    assert decode(part.records) == [Record(5000, b"k", b"a", ()), Record(5000, None, b"b", ())]


def test_fetch_from_several_partitions_scans_without_waiting_first() -> None:
    front = desk()
    front.send(fetch(9, 9))
    assert [scan.wait_ms for scan in front.commands] == [0, 0]
    front.answer(scanned(9))
    front.answer(scanned(9))
    assert [scan.wait_ms for scan in front.commands] == [500, 500]
    front.answer(
        scanned(9, chunk(9), end=11), front.asked[1]
    )  # this partition gets a message first
    first, second = parts(front)
    assert (first.records, first.high_watermark) == (b"", 9)
    assert second.high_watermark == 11
    front.answer(scanned(9))  # arrives after the response
    assert not front.replies


def test_empty_fetch_is_answered_when_its_wait_expires() -> None:
    front = desk()
    front.send(fetch(9))
    front.front.now = 0.5
    front.answer(scanned(9))
    (part,) = parts(front)
    assert (part.error_code, part.records) == (0, b"")


def test_fetch_is_retried_after_a_pause_if_an_older_node_does_not_wait() -> None:
    front = desk()
    front.send(fetch(9))
    front.answer(scanned(9))
    assert not front.asked
    front.wait(0.02)
    assert [scan.wait_ms for scan in front.commands] == [480]
    front.answer(scanned(9, chunk(9)))
    assert parts(front)[0].records


def test_fetch_waits_for_its_minimum_size() -> None:
    front = desk()
    front.send(fetch(7, 7, least=100_000))
    front.answer(scanned(7, chunk(7)))
    front.answer(scanned(7, chunk(7)))
    assert not front.replies
    assert len(front.asked) == 2


def test_fetch_respects_the_maximum_response_size() -> None:
    front = desk()
    front.send(fetch(7, 7, most=10))
    front.answer(scanned(7, chunk(7)))
    front.answer(scanned(7, chunk(7)))
    first, second = parts(front)
    assert first.records
    assert second.records == b""


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (scanned(3, first=3), Code.OFFSET_OUT_OF_RANGE),
        (errors.NoSuchTopic("t0"), Code.UNKNOWN_TOPIC_OR_PARTITION),
        (errors.Denied(), Code.TOPIC_AUTHORIZATION_FAILED),
        (scanned(1, Chunk(1, 0, 2, "p", 0, chunk(1).batch[:-1] + b"x")), Code.CORRUPT_MESSAGE),
    ],
)
def test_fetch_error_is_answered_at_once(outcome: Any, code: Code) -> None:
    front = desk()
    front.send(fetch(1))
    front.answer(outcome)
    (part,) = parts(front)
    assert part.error_code == code


def test_unknown_partition_is_refused() -> None:
    front = desk()
    front.front.partitions.learn("t", 0)
    part = m.FetchPartition(partition=3, fetch_offset=0, partition_max_bytes=9)
    topic = m.FetchTopic(topic="t", partitions=(part,))
    front.send(m.FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=9, topics=(topic,)))
    assert parts(front)[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_empty_fetch_is_answered() -> None:
    front = desk()
    front.send(fetch())
    assert parts(front) == []


def listed(timestamp: int, outcome: Any, start: Any) -> tuple[int, int, int]:
    front = desk()
    part = m.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = m.ListOffsetsTopic(name="t", partitions=(part,))
    front.send(m.ListOffsetsRequest(topics=(topic,)))
    assert front.commands == [Scan(0, "t", start)]
    front.answer(outcome)
    found: Any = front.reply().topics[0].partitions[0]
    return found.error_code, found.offset, found.timestamp


def test_offsets_are_listed_by_position_and_by_time() -> None:
    """KAF-1"""
    assert listed(-1, scanned(9), do.FromNew()) == (0, 9, -1)
    assert listed(-2, scanned(2), do.FromEarliest()) == (0, 2, -1)
    found = Scanned(0, 1, 0, 9, 4, (), 1_500_000)
    assert listed(1200, found, do.FromTime(1_200_000)) == (0, 4, 1500)
    assert listed(99_000, scanned(9), do.FromTime(99_000_000)) == (0, -1, -1)
    assert listed(-3, scanned(9), do.FromEarliest())[0] == Code.INVALID_REQUEST
    unknown = errors.NoSuchTopic("t")
    assert listed(-1, unknown, do.FromNew())[0] == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_time_beyond_the_supported_range_is_replaced_by_the_latest_time() -> None:
    front = desk()
    partition = m.ListOffsetsPartition(partition_index=0, timestamp=(1 << 63) - 1)
    topic = m.ListOffsetsTopic(name="t", partitions=(partition,))
    front.send(m.ListOffsetsRequest(topics=(topic,)))
    assert front.commands == [Scan(0, "t", do.FromTime((1 << 63) - 1))]


def test_unanswered_read_gets_a_retriable_error() -> None:
    """A Java consumer stops if a fetch returns an unexpected error code."""
    front = desk()
    front.send(fetch(7))
    front.answer(local.NoAnswer(5.0))
    assert parts(front)[0].error_code == Code.NOT_LEADER_OR_FOLLOWER
    partition = m.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = m.ListOffsetsTopic(name="t", partitions=(partition,))
    front.send(m.ListOffsetsRequest(topics=(topic,)))
    front.answer(local.NoAnswer(5.0))
    assert front.reply().topics[0].partitions[0].error_code == Code.NOT_LEADER_OR_FOLLOWER


def test_fetch_session_from_another_broker_is_refused() -> None:
    front = desk()
    request = fetch(7)
    request.session_id, request.session_epoch = 5, 3
    front.send(request)
    assert front.reply().error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    request.session_epoch = -1  # the client ends its session
    front.send(request)
    assert len(front.asked) == 1


def test_fetch_from_a_disconnected_client_is_not_repeated() -> None:
    front = desk()
    front.send(fetch(7, 8))
    front.front.request(Disconnected(1))
    front.answer(scanned(7))
    front.answer(scanned(8))
    assert not front.asked
    assert not front.timers


def test_response_size_is_limited_for_any_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oncecast.kafka.fetching.FETCH_BYTES_MAX", 50)
    front = desk()
    front.send(fetch(7, 7, most=(1 << 31) - 1))
    assert [each.bytes for each in front.commands] == [50, 50]
    front.answer(scanned(7, chunk(7)))
    front.answer(scanned(7, chunk(7)))
    assert [bool(each.records) for each in parts(front)] == [True, False]


@pytest.mark.parametrize(("wanted", "asked", "found"), [(-1, 0, 0), (50, 50, 9)])
def test_fetch_outside_the_topic_is_out_of_range(wanted: int, asked: int, found: int) -> None:
    front = desk()
    front.send(fetch(wanted))
    assert front.commands[0].start == do.FromOffset(asked)
    front.answer(scanned(found))
    assert parts(front)[0].error_code == Code.OFFSET_OUT_OF_RANGE


def test_error_in_one_partition_is_answered_at_once() -> None:
    front = desk()
    front.send(fetch(7, 8))
    front.answer(errors.NoSuchTopic("t0"))
    front.answer(scanned(8))
    codes = [each.error_code for each in parts(front)]
    assert codes == [Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NONE]


def test_empty_topic_has_no_offset_for_time_0() -> None:
    front = desk()
    partition = m.ListOffsetsPartition(partition_index=0, timestamp=0)
    topic = m.ListOffsetsTopic(name="t", partitions=(partition,))
    front.send(m.ListOffsetsRequest(topics=(topic,)))
    front.answer(scanned(0, end=0))
    assert front.reply().topics[0].partitions[0].offset == -1
