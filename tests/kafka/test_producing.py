"""Test Produce and InitProducerId: exact commands to the session, exact responses (KAF-2)."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from google_crc32c import value as crc32c

from oncecast.client.session import local
from oncecast.kafka import messages as m
from oncecast.kafka.errors import Code
from oncecast.kafka.producing import PRODUCERS_MAX, Producer
from oncecast.kafka.transaction import SEQUENCES
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.batch import unwrap
from oncecast.wire.kafka_records import TRANSACTIONAL, Record, encode
from oncecast.wire.results import Already, Appended, Opened
from tests.kafka.front_desk import FrontDesk, desk

NAME = "kafka/5/0"
ONE = [Record(1000, None, b"one", ())]


def stamped(records: list[Record], sequence: int, *, epoch: int = 0, attributes: int = 0) -> bytes:
    """Return a batch of producer 5."""
    data = bytearray(encode(records))
    data[21:23] = struct.pack(">h", attributes)
    data[43:57] = struct.pack(">qhi", 5, epoch, sequence)
    data[17:21] = struct.pack(">I", crc32c(bytes(data[21:])))
    return bytes(data)


def produce(records: bytes | None, *, acks: int = -1, index: int = 0) -> m.ProduceRequest:
    partition = m.ProducePartition(index=index, records=records)
    topic = m.ProduceTopic(name="t", partitions=(partition,))
    return m.ProduceRequest(acks=acks, timeout_ms=5000, topics=(topic,))


def answered(front: FrontDesk) -> m.ProduceResponsePartition:
    found: Any = front.reply().topics[0].partitions[0]
    assert isinstance(found, m.ProduceResponsePartition)
    return found


def opened(front: FrontDesk, next_sequence: int = 0) -> None:
    front.answer(Opened(9, next_sequence, 1, (0, next_sequence)))


def put_of(sequence: int, data: bytes, asked: object) -> do.Put:
    assert isinstance(asked, do.Put)
    assert unwrap(asked.batch) == data
    return do.Put("t", NAME, 9, sequence, asked.count, len(asked.batch), 0, asked.batch)


def test_idempotent_batch_is_put_under_its_own_sequence() -> None:
    """KAF-2: the node deduplicates by the producer's own sequence, so no resent batch is stored
    twice."""
    front, data = desk(), stamped(ONE, 0)
    front.send(produce(data))
    assert front.commands == [do.OpenProducer("t", NAME, NAME, 0, directory_id=NAME, expected=0)]
    opened(front)
    assert front.commands == [put_of(0, data, front.commands[0])]
    assert not front.replies  # no response before the batch is on disk
    front.answer(Appended(40, 1, True))
    assert answered(front) == m.ProduceResponsePartition(index=0, base_offset=40)


def test_resent_batch_gets_its_original_offset() -> None:
    """KAF-2"""
    front = desk()
    front.send(produce(stamped(ONE, 0)))
    opened(front, 1)
    front.answer(Already(40, 1))
    assert answered(front) == m.ProduceResponsePartition(index=0, base_offset=40)


def test_pipelined_batches_are_sent_at_once_and_answered_in_order() -> None:
    front = desk()
    first = front.send(produce(stamped(ONE, 0)))
    second = front.send(produce(stamped(ONE, 1)))
    opened(front)
    assert [put.sequence for put in front.commands] == [0, 1]
    front.answer(Appended(8, 1, True), front.asked[1])
    assert not front.replies  # responses keep the order of the requests
    front.answer(Appended(7, 1, True))
    assert [(each[1], each[2].topics[0].partitions[0].base_offset) for each in front.replies] == [
        (first, 7),
        (second, 8),
    ]


def test_batch_that_overtook_an_earlier_one_is_sent_again() -> None:
    """KAF-2: a batch that arrives out of order does not cause an error on the client."""
    front = desk()
    front.send(produce(stamped(ONE, 0)))
    front.send(produce(stamped(ONE, 1)))
    opened(front)
    front.answer(errors.Gap(0), front.asked[1])
    assert [put.sequence for put in front.commands] == [0]
    front.answer(Appended(7, 1, True))
    assert [put.sequence for put in front.commands] == [1]
    front.answer(Appended(8, 1, True))
    assert [each[2].topics[0].partitions[0].base_offset for each in front.replies] == [7, 8]


def test_gap_in_a_client_sequence_is_refused() -> None:
    front = desk()
    front.send(produce(stamped(ONE, 0)))
    opened(front)
    front.answer(Appended(7, 1, True))
    front.replies.clear()
    front.send(produce(stamped(ONE, 5)))
    front.answer(errors.Gap(1))
    assert answered(front).error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_producer_whose_record_was_deleted_must_start_again() -> None:
    front = desk()
    front.send(produce(stamped(ONE, 5)))
    opened(front)
    front.answer(errors.Gap(0))
    assert answered(front).error_code == Code.UNKNOWN_PRODUCER_ID


def test_producer_reopens_a_deleted_topic() -> None:
    front = desk()
    front.send(produce(stamped(ONE, 0)))
    opened(front)
    front.answer(errors.Unopened("t", NAME))
    assert isinstance(front.commands[0], do.OpenProducer)
    opened(front)
    front.answer(errors.Unopened("t", NAME))
    assert answered(front).error_code == Code.UNKNOWN_PRODUCER_ID


def test_batch_without_a_producer_id_is_put_by_the_session() -> None:
    """KAF-2: the session resends and deduplicates it."""
    front, data = desk(), encode(ONE)
    front.send(produce(data))
    (asked,) = front.asked
    assert isinstance(asked, local.Produce)
    assert (asked.topic, asked.count, unwrap(asked.batch)) == ("t", 1, data)
    front.answer(local.Stored(0, 3, True))
    assert answered(front).base_offset == 3


def test_put_with_acks_0_gets_no_response_and_does_not_delay_the_next_one() -> None:
    front = desk()
    front.send(produce(encode(ONE), acks=0))
    later = front.send(m.FindCoordinatorRequest(key="g"))
    assert [each[1] for each in front.replies] == [later]
    assert not front.handled
    front.answer(local.Stored(0, 3, True))
    assert len(front.replies) == 1
    assert front.handled == [1]  # the listener may read further requests


def test_failed_put_with_acks_0_ends_the_connection() -> None:
    """The client gets no response, so only a closed connection can report the failure."""
    front = desk()
    front.send(produce(encode(ONE), acks=0))
    front.send(produce(encode(ONE), acks=0))
    front.answer(errors.NoSuchTopic("t"))
    assert front.hung_up == [1]
    front.answer(errors.NoSuchTopic("t"))
    assert (front.hung_up, front.handled) == ([1], [])


def test_bytes_in_flight_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay in memory while no node answers, even if the client has disconnected."""
    data = encode(ONE)
    monkeypatch.setattr("oncecast.kafka.producing.IN_FLIGHT_BYTES_MAX", len(data))
    front = desk()
    front.send(produce(data))
    front.connect(2)
    front.send(produce(data), 2)
    assert len(front.asked) == 1
    assert answered(front).error_code == Code.REQUEST_TIMED_OUT
    front.answer(local.Stored(0, 3, True))
    assert answered(front).base_offset == 3
    front.send(produce(data), 2)
    assert len(front.asked) == 1


def test_put_timeout_is_limited() -> None:
    front = desk()
    request = produce(stamped(ONE, 0))
    request.timeout_ms = (1 << 31) - 1
    front.send(request)
    assert front.asked[0].timeout == 60.0


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (produce(encode(ONE), index=1), Code.UNKNOWN_TOPIC_OR_PARTITION),
        (produce(encode(ONE), index=-1), Code.UNKNOWN_TOPIC_OR_PARTITION),
        (produce(encode(ONE), acks=2), Code.INVALID_REQUIRED_ACKS),
        (produce(b"nonsense"), Code.CORRUPT_MESSAGE),
        (produce(None), Code.CORRUPT_MESSAGE),
        (produce(stamped(ONE, 0, attributes=TRANSACTIONAL)), Code.INVALID_TXN_STATE),
        (produce(stamped(ONE, -1)), Code.INVALID_RECORD),
        (produce(stamped(ONE, 0, epoch=-1)), Code.INVALID_RECORD),
    ],
)
def test_invalid_batch_is_refused_before_it_is_sent(request_: m.ProduceRequest, code: Code) -> None:
    front = desk()
    front.front.partitions.learn("t", 0)
    front.send(request_)
    assert not any(isinstance(each, local.Do | local.Produce) for each in front.asked)
    assert answered(front).error_code == code


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (errors.Denied(), Code.TOPIC_AUTHORIZATION_FAILED),
        (errors.TooLarge("bytes", 9), Code.MESSAGE_TOO_LARGE),
        (errors.InvalidTopic(), Code.INVALID_TOPIC_EXCEPTION),
        (local.NoAnswer(5.0), Code.REQUEST_TIMED_OUT),
    ],
)
def test_refusal_is_mapped_to_a_kafka_error_code(outcome: Any, code: Code) -> None:
    for at_open in (True, False):
        front = desk()
        front.send(produce(stamped(ONE, 0)))
        if not at_open:
            opened(front)
        front.answer(outcome)
        assert answered(front).error_code == code


def test_sequence_continues_after_it_wraps_around() -> None:
    producer = Producer()
    assert producer.unwrapped(0) == 0
    producer.next = SEQUENCES
    assert producer.unwrapped(0) == SEQUENCES
    assert producer.unwrapped(SEQUENCES - 1) == SEQUENCES - 1  # a resent batch
    producer.next = 3 * SEQUENCES + 5
    assert producer.unwrapped(5) == 3 * SEQUENCES + 5
    assert producer.unwrapped(SEQUENCES - 2) == 3 * SEQUENCES - 2


def test_producer_ids_are_unique() -> None:
    front = desk()
    front.send(m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1))
    first = front.reply()
    front.send(m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1))
    second = front.reply()
    assert first.producer_id != second.producer_id
    assert (first.error_code, first.producer_epoch) == (0, 0)


def test_front_end_remembers_a_bounded_number_of_producers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oncecast.kafka.producing.PRODUCERS_MAX", 3)
    front = desk()
    for epoch in range(10):
        front.send(produce(stamped(ONE, 0, epoch=epoch)))
        opened(front)
        front.answer(Appended(epoch, 1, True))
    assert len(front.front.producing._producers) == 3
    assert PRODUCERS_MAX == 10_000


@pytest.mark.parametrize("time", [(1 << 63) - 1, -(1 << 63)])
def test_batch_with_an_impossible_timestamp_is_stored_unchanged(time: int) -> None:
    data = bytearray(encode(ONE))
    data[27:35] = struct.pack(">q", time)
    data[17:21] = struct.pack(">I", crc32c(bytes(data[21:])))
    front = desk()
    front.send(produce(bytes(data)))
    assert unwrap(front.asked[0].batch) == bytes(data)


def test_long_refusal_fits_into_a_response() -> None:
    front = desk()
    front.send(produce(stamped(ONE, 0)))
    front.answer(errors.Unopened("t" * 32_767, NAME))
    assert len(answered(front).error_message or "") <= 1000


def test_sequence_wraps_while_earlier_batches_are_in_flight() -> None:
    """KAF-2: the batch after the wrap is new. It would be lost if it counted as resent."""
    front = desk()
    front.send(produce(stamped(ONE, SEQUENCES - 2)))
    opened(front, SEQUENCES - 2)
    front.send(produce(stamped(ONE, SEQUENCES - 1)))
    front.send(produce(stamped(ONE, 0)))
    wanted = [SEQUENCES - 2, SEQUENCES - 1, SEQUENCES]
    assert [put.sequence for put in front.commands] == wanted


def test_front_end_follows_the_sequence_of_stored_batches() -> None:
    front = desk()
    front.send(produce(stamped(ONE, SEQUENCES // 2 - 1)))
    opened(front, SEQUENCES // 2 - 1)
    front.answer(Appended(7, 1, True))
    front.send(produce(stamped(ONE, 0)))
    assert [put.sequence for put in front.commands] == [SEQUENCES]


def test_waiting_batches_are_resent_in_sequence_order() -> None:
    front = desk()
    front.send(produce(stamped(ONE, 1)))
    front.send(produce(stamped(ONE, 2)))
    opened(front)
    front.answer(errors.Gap(0), front.asked[1])
    front.answer(errors.Gap(0))
    assert [put.sequence for put in front.commands] == [1, 2]
    front.answer(errors.Gap(0))
    front.answer(errors.Gap(0))
    codes = [each[2].topics[0].partitions[0].error_code for each in front.replies]
    assert codes == [Code.UNKNOWN_PRODUCER_ID] * 2
