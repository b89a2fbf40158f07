"""A node stores a transaction in one slot, and delivers each topic its own messages (TXN-1)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from oncecast.broker import moves
from oncecast.broker.service import StoredBatch, carried
from oncecast.kernel.protocol import Value
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.frames import Answer, Call, Delivery
from oncecast.wire.limits import Limits
from oncecast.wire.results import (
    PublishedRange,
    SourceOpened,
    TransactionEnded,
)
from oncecast.wire.transactions import Accepted, Consumed, EndTransaction, Output
from tests.broker.desk import ANN, BOB, Desk, fetch, packed, put, reading, values
from tests.broker.machine_steps import Steps
from tests.broker.test_dispatching import SharedNode, offsets, token
from tests.broker.test_machine_moves import YES, Move
from tests.broker.test_machine_transactions import committed, out

RANGES = (PublishedRange("a", 0, 2, True), PublishedRange("b", 0, 1, True))
DONE = TransactionEnded(True, RANGES, False)


def output(topic: str, *found: bytes) -> Output:
    data = packed(*found)
    return Output(topic, len(found), len(data), data)


class Node(Desk):
    """A node with readers of the topics `a` and `b`, and an open source."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.readers = {topic: reading(self, ANN, topic) for topic in ("a", "b")}
        opened = self.call(BOB, do.OpenSource("src", "inc", "a", 0))
        assert isinstance(opened, SourceOpened)
        self.epoch = opened.epoch

    def end(self, number: int = 0, **fields: Any) -> Any:
        return self.call(BOB, self.command(number, **fields))

    def command(self, number: int = 0, **fields: Any) -> EndTransaction:
        return EndTransaction("src", "a", self.epoch, number, 0, 0, **fields)

    def read(self, topic: str, offset: int = 0) -> list[Value]:
        return self.send(ANN, fetch(self.readers[topic], offset, topic=topic))


BOTH = (output("a", b"1", b"2"), output("b", b"3"))


def test_readers_get_the_messages_of_their_topic_only() -> None:
    """TXN-1 SEC-2"""
    node = Node()
    assert (node.read("a"), node.read("b")) == ([], [])
    assert node.end(outputs=BOTH) == DONE
    for topic, expected in (("a", [b"1", b"2"]), ("b", [b"3"])):
        found = [each for each in node.took(ANN) if getattr(each, "topic", "") == topic]
        found = found or node.read(topic)
        assert values(found) == expected
        assert isinstance(found[0], Delivery)
        assert (found[0].chunks[0].producer, found[0].chunks[0].sequence) == ("src", 0)


def test_restarted_node_reads_the_messages_from_its_log() -> None:
    """TXN-1 SVC-9"""
    node = Node()
    node.end(outputs=BOTH)
    node.restart()
    node.readers = {topic: reading(node, ANN, topic) for topic in ("a", "b")}
    assert values(node.read("a")) == [b"1", b"2"]
    assert values(node.read("b")) == [b"3"]
    again = node.end(outputs=BOTH)
    assert again == msgspec.structs.replace(DONE, already=True)


def test_each_batch_of_a_transaction_is_carried_alone() -> None:
    """SVC-9"""
    node = Node(service={"snapshot_bytes": 4000})
    node.end(outputs=BOTH)
    slot = node.service.machine.registry.last_slot
    extents = node.service.machine.extents_before(slot + 1)
    found = [(topic, node.service.batch_at(slot, topic).batch) for topic, _ in extents]
    assert found == [(each.topic, each.batch) for each in BOTH]
    stage = carried(node.command(outputs=BOTH), "b")
    assert stage == do.Stage("src", 0, "", "b", 1, BOTH[1].size, 0, BOTH[1].batch, "", node.epoch)
    producer = node.call(BOB, do.OpenProducer("c", "p", "inc", 0)).epoch
    node.call(BOB, do.CreateTopic("c", 0))
    for number in range(100):
        node.call(BOB, put(producer, number, bytes(200), topic="c"))
        node.pass_time(1.0)
    assert node.service.machine.needed() > slot
    assert values(node.read("a")) == [b"1", b"2"]
    assert values(node.read("b")) == [b"3"]


def test_worker_gets_more_jobs_after_a_transaction() -> None:
    """TXN-1 WRK-1"""
    node = SharedNode()
    node.fill(b"a", b"b")
    jobs = node.work(window=1)
    epoch = node.call(ANN, do.OpenSource("src", "inc", "topic", 0)).epoch
    done = (Accepted("topic", "sub", f"of {ANN}", ((token(jobs), 0, 1),)),)
    node.call(ANN, EndTransaction("src", "topic", epoch, 0, 0, 0, accepted=done))
    assert offsets(node.took(ANN)) == [1]


def test_worker_gets_jobs_that_a_transaction_puts() -> None:
    node = SharedNode()
    node.work(window=5)
    epoch = node.call(BOB, do.OpenSource("src", "inc", "topic", 0)).epoch
    end = EndTransaction("src", "topic", epoch, 0, 0, 0, outputs=(output("topic", b"c", b"d"),))
    node.call(BOB, end)
    assert offsets(node.took(ANN)) == [0, 1]


# -- limits of the node --


def test_damaged_batch_is_refused() -> None:
    """SEC-3 TXN-1: the node checks each batch before it proposes the transaction."""
    node = Node()
    damaged = msgspec.structs.replace(BOTH[1], batch=b"junk", size=4)
    assert isinstance(node.end(outputs=(BOTH[0], damaged)), errors.BadBatch)
    wrong = msgspec.structs.replace(BOTH[1], count=7)
    assert isinstance(node.end(outputs=(BOTH[0], wrong)), errors.BadBatch)
    assert node.end(outputs=BOTH) == DONE


def test_transaction_is_as_large_as_a_batch_may_be() -> None:
    """SVC-7"""
    size = sum(each.size for each in BOTH)
    node = Node(service={"limits": Limits(batch_bytes_max=size - 1)})
    assert node.end(outputs=BOTH) == errors.TooLarge("bytes", size - 1)
    node = Node(service={"limits": Limits(batch_bytes_max=size)})
    assert node.end(outputs=BOTH) == DONE


def test_full_disk_refuses_messages_but_no_acknowledgements() -> None:
    """SVC-7: a commit that was stored before is still answered."""
    node = Node()
    assert node.end(outputs=BOTH) == DONE
    node.gateway.free_disk_bytes = lambda: 0
    assert node.end(outputs=BOTH) == msgspec.structs.replace(DONE, already=True)
    assert node.end(1, outputs=BOTH) == errors.Overloaded(errors.DISK)
    read = (Consumed("a", "sub", node.readers["a"], 0, 2),)
    assert node.end(2, consumed=read) == TransactionEnded(True, (), already=False)


def test_bytes_in_flight_include_transactions() -> None:
    """SVC-7"""
    node = Node()
    node.waiting = True
    node.send(BOB, Call(1, node.command(outputs=BOTH)))
    assert node.gateway._clients[BOB].bytes == sum(each.size for each in BOTH)
    node.sync()
    assert node.gateway._clients[BOB].bytes == 0


def test_group_below_the_level_refuses_transactions() -> None:
    """OPS-2 TXN-1"""
    desk = Desk(service={"level": 2})
    too_low = errors.LevelTooLow(3, 2)
    assert desk.call(BOB, do.OpenSource("src", "inc", "a", 0)) == too_low
    assert desk.send(BOB, Call(7, EndTransaction("src", "a", 1, 0, 0, 0))) == [Answer(7, too_low)]


def test_cached_batches_are_those_of_the_topic() -> None:
    node = Node()
    node.end(outputs=BOTH)
    slot = node.service.machine.registry.last_slot
    assert node.service.stored_batch(slot, "b") == StoredBatch("src", -1, BOTH[1].batch)


# -- rings --


def test_source_moves_with_its_parts_results_and_epoch() -> None:
    """REP-6 TXN-1: the importer refuses the older process, and repeats no commit."""
    move = Move()
    for steps in (move.exporter, move.importer):
        steps.apply(do.SetLimits(Limits(), 3))
    opened = move.exporter.apply(do.OpenSource("src", "inc", "t", 0))
    assert isinstance(opened, SourceOpened)
    epoch, put = opened.epoch, (out("t", 2),)
    end = EndTransaction("src", "t", epoch, 0, 0, 0, outputs=put)
    first = move.exporter.apply(end)
    assert first == committed(("t", 10, 2))
    part = do.Stage("src", 1, "b", "t", 3, 100, 0, b"bytes", epoch=epoch)
    move.exporter.apply(part)
    move.claim()
    move.copy()
    move.importer.apply(moves.Import("m", "t", 0, -1, 3, 100, 1000, 0, -1, part))
    move.freeze()
    assert move.exporter.apply(end) == errors.NotHere("t")
    assert move.adopt() == YES
    assert move.exporter.apply(moves.Release("m")) == YES
    assert isinstance(first, TransactionEnded)
    assert move.importer.apply(end) == msgspec.structs.replace(first, already=True)
    more = EndTransaction("src", "t", epoch, 1, 1, 0, parts=("b",))
    assert move.importer.apply(more) == committed(("t", 12, 3))
    assert move.importer.apply(do.OpenSource("src", "inc", "t", 0)) == SourceOpened(epoch, True, 1)


@pytest.mark.parametrize("level", [1, 2])
def test_older_programs_read_the_state_of_sources_without_transactions(level: int) -> None:
    """OPS-2: the rows of transactions are there only after a command of their level."""
    steps = Steps()
    steps.apply(do.SetLimits(Limits(), level))
    steps.stage(0, "a")
    rows = b"".join(steps.machine.state())
    assert b"OpeningRow" not in rows
    assert b"EndedRow" not in rows
