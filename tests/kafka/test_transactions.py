"""Test the transactions of Kafka clients: exactly these commands for each request (TXN-1)."""

from __future__ import annotations

from typing import Any

import pytest
from google_crc32c import value as crc32c

from oncecast.client.session import local
from oncecast.kafka import messages as m
from oncecast.kafka.conversion import native_batch
from oncecast.kafka.errors import Code
from oncecast.wire import commands as do
from oncecast.wire import errors, kafka_records
from oncecast.wire.results import Attached, SourceOpened, Staged, Subscribed, TransactionEnded
from oncecast.wire.transactions import Consumed, EndTransaction
from tests.kafka.front_desk import FrontDesk, desk

SOURCE, EPOCH = "kafka-transactions/id", 7
COMMITTED = TransactionEnded(committed=True, ranges=(), already=False)
ABORTED = TransactionEnded(committed=False, ranges=(), already=False)
KEPT_COMMITTED = TransactionEnded(committed=True, ranges=(), already=True)
KEPT_ABORTED = TransactionEnded(committed=False, ranges=(), already=True)
LOST = Code.INVALID_PRODUCER_ID_MAPPING


def opened(*, id: str = "id", ring: bool = False) -> FrontDesk:
    """Return a front end with an open transactional id."""
    front = desk()
    front.send(m.InitProducerIdRequest(transactional_id=id, transaction_timeout_ms=1))
    front.answer(SourceOpened(EPOCH, ring))
    assert front.reply() == m.InitProducerIdResponse(producer_id=EPOCH, producer_epoch=0)
    return front


def begun(**options: Any) -> FrontDesk:
    """Return a front end with an open transaction."""
    front = opened(**options)
    add(front)
    front.answer(ABORTED)
    assert added(front) == Code.NONE
    return front


def add(front: FrontDesk, topic: str = "t", *, id: str = "id", epoch: int = EPOCH) -> None:
    topics = (m.AddedTopic(name=topic, partitions=(0,)),)
    front.send(
        m.AddPartitionsToTxnRequest(
            transactional_id=id, producer_id=epoch, producer_epoch=0, topics=topics
        )
    )


def added(front: FrontDesk) -> int:
    code: int = front.reply().results[0].partitions[0].error_code
    return code


def batch(sequence: int, *values: bytes) -> bytes:
    records = kafka_records.records_of(
        values, [None] * len(values), [{}] * len(values), [0] * len(values)
    )
    data = bytearray(kafka_records.encode(records, base_offset=0))
    data[21:23] = kafka_records.TRANSACTIONAL.to_bytes(2, "big")
    data[43:51] = EPOCH.to_bytes(8, "big")
    data[51:53] = bytes(2)
    data[53:57] = sequence.to_bytes(4, "big")
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def produce(front: FrontDesk, records: bytes, topic: str = "t") -> None:
    partition = m.ProducePartition(index=0, records=records)
    topics = (m.ProduceTopic(name=topic, partitions=(partition,)),)
    front.send(m.ProduceRequest(transactional_id="id", acks=-1, timeout_ms=1000, topics=topics))


def produced(front: FrontDesk) -> int:
    code: int = front.reply().topics[0].partitions[0].error_code
    return code


def end(front: FrontDesk, *, commit: bool = True, connection: int = 1) -> None:
    front.send(
        m.EndTxnRequest(
            transactional_id="id", producer_id=EPOCH, producer_epoch=0, committed=commit
        ),
        connection,
    )


def ending(number: int, *, commit: bool = False, **content: Any) -> EndTransaction:
    return EndTransaction(SOURCE, "id", EPOCH, number, number, 0, commit, **content)


def test_transaction_is_marked_staged_and_committed() -> None:
    """TXN-1"""
    front = opened()
    add(front)
    assert front.commands == [ending(0)]  # the marker
    front.answer(ABORTED)
    assert added(front) == Code.NONE
    data = batch(0, b"a", b"b")
    produce(front, data)
    native = native_batch(data, kafka_records.check(data))
    assert front.commands == [
        do.Stage(SOURCE, 1, "0/0", "t", 2, len(native), 0, native, epoch=EPOCH)
    ]
    front.answer(Staged(already=False))
    assert produced(front) == Code.NONE
    end(front)
    assert front.commands == [ending(1, commit=True, parts=("0/0",))]
    front.answer(COMMITTED)
    assert front.reply().error_code == Code.NONE
    add(front)
    assert front.commands == [ending(2)]


def test_batches_are_committed_in_the_order_of_their_sequences() -> None:
    """TXN-1: also if they arrive in another order, or if the sequence wraps."""
    front = begun()
    for sequence in (2**31 - 1, 2**31 - 2, 0, 2**31 - 2):
        produce(front, batch(sequence, b"v"))
        front.answer(Staged(already=False))
        assert produced(front) == Code.NONE
    end(front)
    (command,) = front.commands
    assert command.parts == (f"0/{2**31 - 2}", f"0/{2**31 - 1}", "0/0")


def test_offsets_of_a_group_are_part_of_the_commit() -> None:
    """TXN-1, KAF-3"""
    front = begun()
    commit_offset(front, 5)
    assert front.commands == [do.Subscribe("in", "g", do.FromOffset(0), 0)]
    front.answer(Subscribed(0, 1, already=True))
    assert front.commands == [do.Attach("in", "g", f"{SOURCE}/{EPOCH}")]
    front.answer(Attached(9, 3, 0, 8, 3, 1))
    assert front.reply().topics[0].partitions[0].error_code == Code.NONE
    end(front)
    consumed = (Consumed("in", "g", 9, 3, 5),)
    assert front.commands == [ending(1, commit=True, consumed=consumed)]
    front.answer(COMMITTED)
    assert front.reply().error_code == Code.NONE
    add(front)
    front.answer(ABORTED)
    assert added(front) == Code.NONE
    commit_offset(front, 6)  # The group is attached, and its cursor is known.
    assert front.reply().topics[0].partitions[0].error_code == Code.NONE
    end(front)
    assert front.commands == [ending(3, commit=True, consumed=(Consumed("in", "g", 9, 5, 6),))]


def commit_offset(front: FrontDesk, offset: int) -> None:
    partition = m.TxnCommitPartition(partition_index=0, committed_offset=offset)
    front.send(
        m.TxnOffsetCommitRequest(
            transactional_id="id",
            group_id="g",
            producer_id=EPOCH,
            producer_epoch=0,
            topics=(m.TxnCommitTopic(name="in", partitions=(partition,)),),
        ),
        version=2,
    )


def test_transaction_cannot_move_a_group_backwards() -> None:
    """KAF-3"""
    front = begun()
    commit_offset(front, 2)
    front.answer(Subscribed(0, 1, already=True))
    front.answer(Attached(9, 3, 0, 8, 3, 1))
    assert front.reply().topics[0].partitions[0].error_code == Code.INVALID_REQUEST


def test_member_of_an_earlier_generation_cannot_commit() -> None:
    """KAF-3"""
    front = begun()
    partition = m.TxnCommitPartition(partition_index=0, committed_offset=1)
    front.send(
        m.TxnOffsetCommitRequest(
            transactional_id="id",
            group_id="g",
            producer_id=EPOCH,
            producer_epoch=0,
            generation_id=3,
            member_id="gone",
            topics=(m.TxnCommitTopic(name="in", partitions=(partition,)),),
        )
    )
    assert front.reply().topics[0].partitions[0].error_code == Code.UNKNOWN_MEMBER_ID
    assert front.commands == []


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (errors.Fenced(9), Code.INVALID_PRODUCER_EPOCH),
        (errors.Fenced(0), LOST),
        (errors.NotAcknowledged("in", "g", 1, ""), LOST),
        (errors.Denied(), Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_refused_commit_must_be_aborted_by_the_client(outcome: Any, code: Code) -> None:
    """TXN-1: until then, the client cannot continue as if it had begun another transaction."""
    front = begun()
    end(front)
    front.answer(outcome)
    assert front.reply().error_code == code
    end(front)
    assert front.reply().error_code == LOST
    add(front)
    assert added(front) == LOST
    produce(front, batch(0, b"v"))
    assert produced(front) == LOST
    end(front, commit=False)
    assert front.reply().error_code == Code.NONE
    add(front)
    assert front.commands == [ending(2)]


UNKNOWN = local.NoAnswer(local.NEVER, denied=True)


def in_doubt() -> tuple[FrontDesk, EndTransaction]:
    """Return a front end that does not know the outcome of its commit, and the commit."""
    front = begun()
    produce(front, batch(0, b"v"))
    front.answer(Staged(already=False))
    assert produced(front) == Code.NONE
    end(front)
    (commit,) = front.commands
    front.answer(UNKNOWN)
    assert front.reply().error_code == Code.COORDINATOR_NOT_AVAILABLE
    return front, commit


def test_commit_with_an_unknown_outcome_is_repeated_by_the_client() -> None:
    """TXN-1: an earlier copy was executed, and a later one was denied."""
    front, commit = in_doubt()
    add(front)
    assert added(front) == Code.CONCURRENT_TRANSACTIONS
    produce(front, batch(1, b"w"))
    assert produced(front) == Code.INVALID_TXN_STATE
    end(front)
    assert front.commands == [commit]
    front.answer(KEPT_COMMITTED)
    assert front.reply().error_code == Code.NONE
    add(front)
    assert front.commands == [ending(2)]


def test_commit_with_an_unknown_outcome_can_be_aborted() -> None:
    """TXN-1: the client learns if it was committed before."""
    for outcome, code in ((ABORTED, Code.NONE), (KEPT_COMMITTED, LOST)):
        front, _ = in_doubt()
        end(front, commit=False)
        assert front.commands == [ending(1)]
        front.answer(outcome)
        assert front.reply().error_code == code
        add(front)
        assert front.commands == [ending(2)]


@pytest.mark.parametrize("commit", [False, True])
def test_outcome_stays_unknown_while_the_permission_is_withdrawn(commit: bool) -> None:
    """TXN-1 SEC-2"""
    front, command = in_doubt()
    for outcome in (errors.Denied(), UNKNOWN):
        end(front, commit=commit)
        front.answer(outcome)
        assert front.reply().error_code != Code.NONE
    end(front)
    assert front.commands == [command]


def test_repeated_commit_gets_the_same_answer() -> None:
    """TXN-1"""
    front = begun()
    end(front)
    front.connect(2)
    end(front, connection=2)  # the client has reconnected
    assert front.reply().error_code == Code.CONCURRENT_TRANSACTIONS
    front.answer(COMMITTED)
    assert front.reply().error_code == Code.NONE
    end(front)
    assert front.reply().error_code == Code.NONE


def test_batch_outside_a_transaction_is_refused() -> None:
    """TXN-1"""
    front = opened()
    produce(front, batch(0, b"v"))
    assert produced(front) == Code.INVALID_TXN_STATE
    assert front.commands == []


@pytest.mark.parametrize("epoch", [EPOCH - 1, -1])
def test_older_producer_is_fenced(epoch: int) -> None:
    """TXN-1"""
    front = opened()
    add(front, epoch=epoch)
    assert added(front) == Code.INVALID_PRODUCER_EPOCH
    assert front.commands == []


def test_new_epoch_needs_the_current_one() -> None:
    """TXN-1: a producer that recovers from an error does not fence a newer one."""
    front = desk()
    front.send(
        m.InitProducerIdRequest(
            transactional_id="id", transaction_timeout_ms=1, producer_id=EPOCH, producer_epoch=0
        )
    )
    (command,) = front.commands
    assert (command.source, command.expected) == (SOURCE, EPOCH)
    front.answer(errors.Fenced(8))
    assert front.reply().error_code == Code.INVALID_PRODUCER_EPOCH


def test_topic_of_another_group_of_a_ring_is_refused() -> None:
    """TXN-1: the transactional id and its topics need the same tag."""
    front = opened(id="{shop}.copier", ring=True)
    add(front, "{other}.bills", id="{shop}.copier")
    assert added(front) == Code.POLICY_VIOLATION
    add(front, "{shop}.bills", id="{shop}.copier")
    (command,) = front.commands
    assert command.topic == "shop"


# A front end without the state of the transactional id.


def test_restarted_front_end_aborts_a_transaction_whose_content_it_has_lost() -> None:
    """TXN-1: number 4 is a marker, so transaction 5 was open."""
    front = desk()
    produce(front, batch(3, b"v"))
    assert front.commands == [ending(0)]
    front.answer(errors.OldNumber(SOURCE, 0, 3))
    assert front.commands == [ending(4)]
    front.answer(KEPT_ABORTED)
    assert front.commands == [ending(5)]
    front.answer(ABORTED)
    assert produced(front) == LOST
    end(front)
    assert front.reply().error_code == LOST
    end(front, commit=False)
    assert front.reply().error_code == Code.NONE
    add(front)
    assert front.commands == [ending(6)]


def test_restarted_front_end_learns_that_a_commit_took_effect() -> None:
    """TXN-1"""
    front = desk()
    end(front)
    front.answer(errors.OldNumber(SOURCE, 0, 4))
    assert front.commands == [ending(5)]
    front.answer(KEPT_COMMITTED)
    assert front.reply().error_code == Code.NONE
    add(front)
    assert front.commands == [ending(6)]


def test_restarted_front_end_does_not_continue_an_aborted_transaction() -> None:
    """TXN-1: the client may not know that an earlier front end has aborted it."""
    front = desk()
    add(front)
    front.answer(errors.OldNumber(SOURCE, 0, 4))
    front.answer(KEPT_ABORTED)
    assert added(front) == LOST


def test_restarted_front_end_begins_the_first_transaction() -> None:
    """TXN-1: no transaction has begun, because number 0 had not ended."""
    front = desk()
    add(front)
    front.answer(ABORTED)
    assert front.commands == [ending(2)]


def test_first_transaction_is_aborted_if_only_its_marker_is_known() -> None:
    """TXN-1"""
    front = desk()
    add(front)
    front.answer(KEPT_ABORTED)
    assert front.commands == [ending(1)]
    front.answer(ABORTED)
    assert added(front) == LOST


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (errors.Fenced(9), Code.INVALID_PRODUCER_EPOCH),
        (errors.Fenced(0), LOST),
        (errors.Overloaded(""), Code.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_unknown_producer_is_refused(outcome: Any, code: Code) -> None:
    """TXN-1"""
    front = desk()
    end(front)
    end(front)  # It waits for the same answer.
    assert len(front.commands) == 1
    front.answer(outcome)
    assert [each[2].error_code for each in front.replies] == [code, code]
