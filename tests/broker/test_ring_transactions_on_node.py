"""A node holds a share of a transaction across groups until it is resolved (TXN-2)."""

from __future__ import annotations

from typing import Any

from oncecast.broker import moves, service
from oncecast.broker.events import Execute
from oncecast.broker.holding import output_part
from oncecast.kernel.protocol import NodeId
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.frames import Answer, Call
from oncecast.wire.results import (
    Attached,
    MoveStep,
    PublishedRange,
    SourceOpened,
    TransactionEnded,
    TransactionPrepared,
)
from oncecast.wire.ring_transactions import (
    RING_TRANSACTION_LEVEL,
    DecideTransaction,
    PrepareTransaction,
    ResolveTransaction,
    Share,
)
from oncecast.wire.transactions import Accepted, Consumed
from tests.broker.desk import ANN, BOB, Desk, fetch, put, reading, values
from tests.broker.ring_desk import ELSEWHERE, PREPARED
from tests.broker.test_dispatching import SharedNode, offsets, token
from tests.broker.test_machine_moves import YES, Move
from tests.broker.test_transactions_on_node import output

RING = 1 << 50  # a token of no client


def on_ring(desk: Desk) -> int:
    """Make the node's group own a whole ring, open a source, and return its epoch."""
    desk._do(desk.stack.request(desk.now, Execute(RING, moves.Found("g", True))))
    opened = desk.call(BOB, do.OpenSource("src", "inc", "topic", 0))
    assert isinstance(opened, SourceOpened)
    return opened.epoch


def prepare(epoch: int, **fields: Any) -> PrepareTransaction:
    return PrepareTransaction("src", "topic", epoch, 0, 0, 0, **fields, coordinator=ELSEWHERE)


def resolve(epoch: int, *, commit: bool = True) -> ResolveTransaction:
    return ResolveTransaction("src", "topic", epoch, 0, 0, commit)


def test_reader_gets_the_messages_of_a_share_once_it_is_resolved() -> None:
    """TXN-2: nothing is visible before the decision."""
    desk = Desk()
    epoch, reader = on_ring(desk), reading(desk)
    assert desk.send(ANN, fetch(reader, 0)) == []
    data = output("topic", b"1", b"2")
    assert desk.call(BOB, prepare(epoch, outputs=(data,))) == PREPARED
    assert desk.took(ANN) == []
    done = TransactionEnded(True, (PublishedRange("topic", 0, 2, True),), already=False)
    assert desk.call(BOB, resolve(epoch)) == done
    assert values(desk.took(ANN)) == [b"1", b"2"]


def test_restarted_node_holds_the_share_and_reads_its_messages() -> None:
    """TXN-2 SVC-9"""
    desk = Desk()
    epoch = on_ring(desk)
    reading(desk)
    desk.call(BOB, prepare(epoch, outputs=(output("topic", b"1"),)))
    desk.restart()
    reader = desk.call(ANN, do.Attach("topic", "sub", "again")).epoch
    assert desk.send(ANN, fetch(reader, 0)) == []
    desk.call(BOB, resolve(epoch))
    desk.restart()
    reader = desk.call(ANN, do.Attach("topic", "sub", "third")).epoch
    assert values(desk.send(ANN, fetch(reader, 0))) == [b"1"]


def test_reader_attaches_once_the_transaction_is_decided() -> None:
    """TXN-2: a client repeats the same call until it is answered."""
    desk = Desk()
    epoch, reader = on_ring(desk), reading(desk)
    producer = desk.call(BOB, do.OpenProducer("topic", "p", "inc", 0)).epoch
    desk.call(BOB, put(producer, 0, b"a", b"b"))
    consumed = (Consumed("topic", "sub", reader, 0, 1),)
    desk.call(BOB, prepare(epoch, consumed=consumed))
    attach = Call(7, do.Attach("topic", "sub", "new"))
    new = NodeId("client/new")
    assert desk.send(new, attach) == [Answer(7, errors.Overloaded(errors.UNDECIDED))]
    desk.call(BOB, resolve(epoch))
    (answer,) = desk.send(new, attach)
    assert isinstance(answer, Answer)
    assert isinstance(answer.result, Attached)
    assert answer.result.cursor == 1


def test_held_share_is_carried_forward_in_the_log() -> None:
    """TXN-2 SVC-9: a held share does not stop the log from being truncated."""
    desk = Desk(service={"snapshot_bytes": 4000})
    epoch, reader = on_ring(desk), reading(desk)
    data = output("topic", b"held")
    desk.call(BOB, prepare(epoch, outputs=(data,)))
    slot = desk.service.machine.registry.last_slot
    found = desk.service.batch_at(slot, "topic")
    facts = ("topic", 1, data.size, 0, data.batch)
    assert found == do.Stage("src", 0, output_part("topic"), *facts, "", epoch)
    desk.call(BOB, do.CreateTopic("c", 0))
    producer = desk.call(BOB, do.OpenProducer("c", "p", "inc", 0)).epoch
    for number in range(100):
        desk.call(BOB, put(producer, number, bytes(200), topic="c"))
        desk.pass_time(1.0)
    assert desk.service.machine.needed() > slot
    desk.call(BOB, resolve(epoch))
    assert values(desk.send(ANN, fetch(reader, 0))) == [b"held"]


def test_worker_gets_jobs_that_a_share_puts_and_gives_back() -> None:
    """TXN-2"""
    node = SharedNode()
    node._do(node.stack.request(node.now, Execute(RING, moves.Found("g", True))))
    node.fill(b"a", b"b")
    jobs = node.work(window=1)
    epoch = node.call(BOB, do.OpenSource("src", "inc", "topic", 0)).epoch
    done = (Accepted("topic", "sub", f"of {ANN}", ((token(jobs), 0, 1),)),)
    share = prepare(epoch, accepted=done, outputs=(output("topic", b"c"),))
    assert node.call(ANN, share) == TransactionPrepared(already=False)
    assert offsets(node.took(ANN)) == [1]  # its window is free for another job
    node.work(window=5)
    assert isinstance(node.call(ANN, resolve(epoch)), TransactionEnded)
    assert offsets(node.took(ANN)) == [2]


def test_group_below_the_level_refuses_two_phases() -> None:
    """OPS-2"""
    desk = Desk(service={"level": RING_TRANSACTION_LEVEL - 1})
    epoch = on_ring(desk)
    too_low = errors.LevelTooLow(RING_TRANSACTION_LEVEL, RING_TRANSACTION_LEVEL - 1)
    assert desk.call(BOB, prepare(epoch)) == too_low
    assert desk.call(BOB, DecideTransaction("src", "topic", epoch, 0, 0, 0)) == too_low
    assert desk.call(BOB, resolve(epoch)) == too_low


def test_held_share_and_decision_move_with_their_tag() -> None:
    """TXN-2 REP-6: another group finishes what this one has prepared or decided."""
    move = Move()
    for steps in (move.exporter, move.importer):
        steps.apply(do.SetLimits(steps.machine.registry.limits, RING_TRANSACTION_LEVEL))
    epoch = move.exporter.apply(do.OpenSource("src", "inc", "t", 0)).epoch  # type: ignore[union-attr]
    data = output("t", b"1", b"2")
    consumed = (Consumed("t", "s", move.reading.epoch, 3, 5),)
    held = PrepareTransaction(
        "src", "t", epoch, 0, 0, 0, outputs=(data,), consumed=consumed, coordinator=ELSEWHERE
    )
    assert move.exporter.apply(held) == PREPARED
    other = Share("u", 9, 0)
    move.exporter.apply(DecideTransaction("src", "t", epoch, 1, 0, 0, participants=(other,)))
    stage = service.carried(held, "t")
    move.claim()
    move.copy()
    move.importer.apply(moves.Import("m", "t", 0, -1, 2, data.size, 1000, 0, -1, stage))
    move.freeze()
    finish = ResolveTransaction("src", "t", epoch, 0, 0, commit=True)
    assert move.exporter.apply(finish) == errors.NotHere("t")
    assert not move.exporter.machine.registry.staging.unsettled
    assert move.adopt() == YES
    assert move.exporter.apply(moves.Release("m")) == YES
    registry = move.importer.machine.registry
    assert registry.staging.decisions == 1
    busy = errors.Overloaded(errors.UNDECIDED)
    assert move.importer.apply(do.Attach("t", "s", "new")) == busy
    done = TransactionEnded(True, (PublishedRange("t", 10, 2, True),), already=False)
    assert move.importer.apply(finish) == done
    attached = move.importer.apply(do.Attach("t", "s", "new"))
    assert isinstance(attached, Attached)
    assert attached.cursor == 5
    (source,) = registry.staging.unsettled.values()
    assert source.decisions == {(epoch, 1): {"u": other}}


def test_thawed_part_holds_its_shares_again() -> None:
    """TXN-2 REP-6: the importer has given up its claim."""
    move = Move()
    for steps in (move.exporter, move.importer):
        steps.apply(do.SetLimits(steps.machine.registry.limits, RING_TRANSACTION_LEVEL))
    epoch = move.exporter.apply(do.OpenSource("src", "inc", "t", 0)).epoch  # type: ignore[union-attr]
    held = PrepareTransaction("src", "t", epoch, 0, 0, 0, coordinator=ELSEWHERE)
    move.exporter.apply(held)
    move.freeze()
    move.exporter.machine = type(move.exporter.machine).restore(list(move.exporter.machine.state()))
    assert move.exporter.apply(moves.Thaw("m")) == MoveStep(True)
    assert list(move.exporter.machine.registry.staging.unsettled)
    again = move.exporter.apply(held)
    assert again == TransactionPrepared(already=True)
