"""Kafka transactions at their edges: refusals, overlaps and other front ends (TXN-1)."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.client.session import local
from oncecast.kafka import messages as m
from oncecast.kafka import transactions
from oncecast.kafka.errors import Code
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.results import Attached, SourceOpened, Staged, Subscribed
from oncecast.wire.transactions import Consumed, EndTransaction
from tests.kafka.front_desk import FrontDesk, desk
from tests.kafka.test_membership import Members
from tests.kafka.test_transactions import (
    ABORTED,
    COMMITTED,
    EPOCH,
    LOST,
    SOURCE,
    add,
    added,
    batch,
    begun,
    commit_offset,
    end,
    ending,
    opened,
    produce,
    produced,
)

RING = "{shop}.copier"


def init(front: FrontDesk, id: str = "id", producer: int = -1) -> None:
    front.send(
        m.InitProducerIdRequest(
            transactional_id=id, transaction_timeout_ms=1, producer_id=producer, producer_epoch=0
        )
    )


def committed(front: FrontDesk) -> int:
    """Return the error code of the only reply to a `commit_offset`."""
    code: int = front.reply().topics[0].partitions[0].error_code
    return code


def attach(front: FrontDesk, cursor: int = 3) -> None:
    """Let the node attach the group `g`."""
    front.answer(Subscribed(0, 1, already=True))
    front.answer(Attached(9, cursor, 0, 8, cursor, 1), front.asked[-1])


# -- the producer id --


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (errors.Denied(), Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (local.NoAnswer(15.0), Code.COORDINATOR_NOT_AVAILABLE),
        (errors.LevelTooLow(3, 2), Code.UNSUPPORTED_VERSION),
        (errors.TooMany("sources", 1), Code.THROTTLING_QUOTA_EXCEEDED),
    ],
)
def test_refused_open_returns_the_matching_kafka_error_code(outcome: Any, code: Code) -> None:
    front = desk()
    init(front)
    front.answer(outcome)
    assert front.reply().error_code == code


def test_producer_id_zero_expects_that_no_process_holds_the_source() -> None:
    front = desk()
    init(front, producer=0)
    assert front.commands[0].expected == 0


def test_open_transaction_is_forgotten_as_soon_as_a_new_producer_asks() -> None:
    """TXN-1: the node decides which of the two is fenced."""
    front = begun()
    init(front)
    produce(front, batch(0, b"v"))
    (command, question) = front.commands
    assert isinstance(command, do.OpenSource)
    assert question == ending(0)


def test_requests_with_another_kafka_epoch_are_fenced() -> None:
    """TXN-1: every producer id has the epoch 0."""
    front = opened()
    front.send(
        m.EndTxnRequest(transactional_id="id", producer_id=EPOCH, producer_epoch=1, committed=True)
    )
    assert front.reply().error_code == Code.INVALID_PRODUCER_EPOCH


def test_request_without_a_producer_id_is_fenced() -> None:
    front = desk()
    add(front, epoch=-1)
    assert (added(front), front.commands) == (Code.INVALID_PRODUCER_EPOCH, [])


def test_newer_producer_of_another_front_end_is_looked_up() -> None:
    """TXN-1"""
    front = opened()
    add(front, epoch=EPOCH + 1)
    assert front.commands == [EndTransaction(SOURCE, "id", EPOCH + 1, 0, 0, 0, commit=False)]


def test_least_recently_used_ids_without_a_transaction_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-3: the front end looks them up again."""
    monkeypatch.setattr(transactions, "IDS_MAX", 2)
    front = desk()
    for id in ("a", "b"):
        init(front, id)
        front.answer(SourceOpened(EPOCH))
        front.reply()
    add(front, id="a")
    front.answer(ABORTED)  # `a` has an open transaction, and was used after `b`
    front.reply()
    for id, kept in (("c", ["a", "c"]), ("d", ["a", "c", "d"])):
        init(front, id)
        front.answer(SourceOpened(EPOCH))
        front.reply()
        assert list(front.front.transactions._known) == kept


def test_id_that_was_used_last_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "IDS_MAX", 2)
    front = desk()
    for id in ("a", "b"):
        init(front, id)
        front.answer(SourceOpened(EPOCH))
        front.reply()
    add(front, id="a")
    front.answer(ABORTED)
    front.reply()
    front.send(
        m.EndTxnRequest(transactional_id="a", producer_id=EPOCH, producer_epoch=0, committed=False)
    )
    front.answer(ABORTED)
    front.reply()
    init(front, "c")
    front.answer(SourceOpened(EPOCH))
    assert list(front.front.transactions._known) == ["a", "c"]


# -- the beginning --


def test_two_requests_begin_one_transaction() -> None:
    """TXN-1"""
    front = opened()
    add(front)
    add(front, "u")
    assert front.commands == [ending(0)]
    front.answer(ABORTED)
    codes = [each[2].results[0].partitions[0].error_code for each in front.replies]
    assert codes == [Code.NONE, Code.NONE]


def test_end_during_the_beginning_is_tried_again_later() -> None:
    front = opened()
    add(front)
    front.connect(2)
    end(front, connection=2)
    assert front.reply().error_code == Code.CONCURRENT_TRANSACTIONS
    assert front.commands == [ending(0)]


def test_transaction_that_could_not_begin_must_be_aborted() -> None:
    """TXN-1"""
    front = opened()
    add(front)
    front.answer(errors.Denied())
    assert added(front) == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    add(front)
    assert added(front) == LOST
    end(front, commit=False)
    assert front.reply().error_code == Code.NONE
    add(front)
    assert front.commands == [ending(0)]


def test_one_topic_of_another_group_refuses_the_request() -> None:
    """TXN-1"""
    front = opened(id=RING, ring=True)
    topics = tuple(m.AddedTopic(name=name, partitions=(0,)) for name in ("{shop}.a", "{x}.b"))
    front.send(
        m.AddPartitionsToTxnRequest(
            transactional_id=RING, producer_id=EPOCH, producer_epoch=0, topics=topics
        )
    )
    codes = [each.partitions[0].error_code for each in front.reply().results]
    assert codes == [Code.POLICY_VIOLATION, Code.POLICY_VIOLATION]
    assert front.commands == []


# -- the content --


def test_refused_batch_has_the_code_of_its_reason() -> None:
    front = begun()
    produce(front, batch(0, b"v"))
    front.answer(errors.Denied())
    assert produced(front) == Code.TOPIC_AUTHORIZATION_FAILED


def test_batch_for_another_group_of_a_ring_is_refused() -> None:
    """TXN-1"""
    front = desk()
    init(front)
    front.answer(SourceOpened(EPOCH, ring=True))
    front.reply()
    add(front, "{id}.t")
    front.answer(ABORTED)
    front.reply()
    produce(front, batch(0, b"v"), "{other}.t")
    assert (produced(front), front.commands) == (Code.POLICY_VIOLATION, [])


def test_offsets_for_another_group_of_a_ring_are_refused() -> None:
    """TXN-1"""
    front = desk()
    init(front)
    front.answer(SourceOpened(EPOCH, ring=True))
    front.reply()
    add(front, "{id}.t")
    front.answer(ABORTED)
    front.reply()
    commit_offset(front, 1)
    assert (committed(front), front.commands) == (Code.POLICY_VIOLATION, [])


def test_offsets_outside_a_transaction_are_refused() -> None:
    front = opened()
    commit_offset(front, 1)
    assert (committed(front), front.commands) == (Code.INVALID_TXN_STATE, [])


def test_offsets_of_a_lost_transaction_are_refused() -> None:
    front = begun()
    end(front)
    front.answer(errors.Fenced(0))
    front.reply()
    commit_offset(front, 1)
    assert (committed(front), front.commands) == (LOST, [])


@pytest.mark.parametrize(("offset", "code"), [(-1, Code.INVALID_REQUEST), (0, Code.NONE)])
def test_committed_offset_must_not_be_negative(offset: int, code: Code) -> None:
    front = begun()
    commit_offset(front, offset)
    if code == Code.NONE:
        attach(front, cursor=0)
    assert committed(front) == code


def test_offset_at_the_cursor_acknowledges_nothing() -> None:
    """KAF-3"""
    front = begun()
    commit_offset(front, 3)
    attach(front)
    assert committed(front) == Code.NONE
    end(front)
    assert front.commands == [ending(1, commit=True)]


def test_offset_of_a_transaction_that_is_ending_is_refused() -> None:
    """TXN-1: it would be acknowledged by a later transaction."""
    front = begun()
    commit_offset(front, 5)
    front.connect(2)
    end(front, connection=2)
    commit = front.asked[-1]
    attach(front)
    assert committed(front) == LOST
    front.answer(COMMITTED, commit)
    assert front.reply().error_code == Code.NONE


def test_offset_of_an_earlier_transaction_is_refused() -> None:
    """TXN-1"""
    front = begun()
    commit_offset(front, 5)
    front.connect(2)
    end(front, connection=2)
    front.answer(COMMITTED, front.asked[-1])
    front.reply()
    topics = (m.AddedTopic(name="t", partitions=(0,)),)
    front.send(
        m.AddPartitionsToTxnRequest(
            transactional_id="id", producer_id=EPOCH, producer_epoch=0, topics=topics
        ),
        2,
    )
    front.answer(ABORTED, front.asked[-1])
    front.reply()
    attach(front)
    assert committed(front) == LOST
    end(front)
    assert front.commands == [ending(3, commit=True)]


def test_group_is_attached_again_after_another_member_has_acknowledged() -> None:
    """KAF-3"""
    front = begun()
    commit_offset(front, 5)
    attach(front)
    front.reply()
    end(front)
    front.answer(errors.NotAcknowledged("in", "g", 3, "it is already acknowledged"))
    front.reply()
    end(front, commit=False)
    front.reply()
    add(front)
    front.answer(ABORTED)
    front.reply()
    commit_offset(front, 6)
    assert front.commands == [do.Subscribe("in", "g", do.FromOffset(0), 0)]
    attach(front, cursor=5)
    front.reply()
    end(front)
    assert front.commands == [ending(3, commit=True, consumed=(Consumed("in", "g", 9, 5, 6),))]


def test_member_commits_in_the_name_of_its_generation() -> None:
    """KAF-3: a newer generation fences the transaction."""
    members = Members()
    connection, member = members.member()
    members.front.wait(3.1)
    joined = members.response()
    assert joined.error_code == Code.NONE
    init(members.front)
    members.front.answer(SourceOpened(EPOCH))
    members.front.reply()
    add(members.front)
    members.front.answer(ABORTED)
    members.front.reply()
    partition = m.TxnCommitPartition(partition_index=0, committed_offset=1)
    members.front.send(
        m.TxnOffsetCommitRequest(
            transactional_id="id",
            group_id="g",
            producer_id=EPOCH,
            producer_epoch=0,
            generation_id=joined.generation_id,
            member_id=member,
            topics=(m.TxnCommitTopic(name="in", partitions=(partition,)),),
        ),
        connection,
    )
    members.front.answer(Subscribed(0, 1, already=True))
    holder = members.front.front.groups.holder(joined.generation_id)
    assert members.front.commands == [do.Attach("in", "g", holder)]


def test_staged_batch_of_a_refused_commit_is_not_committed_later() -> None:
    """TXN-1"""
    front = begun()
    produce(front, batch(0, b"v"))
    front.answer(Staged(already=False))
    produced(front)
    end(front)
    front.answer(errors.Denied())
    front.reply()
    end(front, commit=False)
    front.reply()
    add(front)
    front.answer(ABORTED)
    front.reply()
    end(front)
    assert front.commands == [ending(3, commit=True)]
