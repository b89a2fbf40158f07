"""Test which elements PaxosQueue asks for, its deposits, and its state on disk."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from oncecast.coordination.assemble import assemble
from oncecast.coordination.protocols.events import (
    CaughtUp,
    Decide,
    Deposit,
    Deposited,
    Dequeue,
    Dequeued,
    Enqueue,
    Settled,
    ViewChanged,
    Withdraw,
)
from oncecast.coordination.protocols.paxos_queue import (
    WINDOW,
    DepositNoted,
    DepositsNoted,
    Entrusted,
    Item,
    Kept,
    PaxosQueue,
)
from oncecast.coordination.protocols.synod import Synod
from oncecast.coordination.protocols.synod_messages import Column, Minuted
from oncecast.kernel.protocol import Append, Ask, Emit, NodeId, Send, Snapshot, Trim
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.queue import paxos_stack
from oncecast.overlay.events import Delivered, Discard, Disregard, MessageId, Publish
from oncecast.overlay.recovery import Recovery
from oncecast.simulator.simulated import Simulation

A, B = NodeId("a"), NodeId("b")
JOBS = "jobs"
ID = MessageId(B, 1)
PAYLOAD = msgspec.msgpack.encode(Item(JOBS, b""))


def layers(me: NodeId) -> dict[str, Any]:
    rng = Random(0)
    return {"elements": Recovery(me, rng), "takers": Synod(me, rng, acceptors=[A])}


def queue(seed: int = 0) -> PaxosQueue:
    return PaxosQueue(A, Random(seed), **layers(A))


def with_job() -> PaxosQueue:
    made = queue()
    made.request(Enqueue(JOBS, b"job"))
    [published] = made.drain()
    assert isinstance(published, Ask)
    assert isinstance(published.request, Publish)
    made.observe(Delivered(ID, published.request.payload))
    return made


def test_queue_requests_one_element_per_waiting_ticket() -> None:
    made = with_job()
    assert made.drain() == []
    made.request(Dequeue(JOBS, 1))
    assert made.drain() == [Ask(Decide("queue/b", 1, made.incarnation))]


def test_lost_element_is_removed_and_dequeue_without_waiting_returns_none() -> None:
    """DDS-5"""
    made = with_job()
    made.request(Dequeue(JOBS, 1))
    made.request(Dequeue(JOBS, 2, wait=True))
    made.drain()
    made.observe(Settled("queue/b", 1, "another"))
    assert made.drain() == [Ask(Discard(ID)), Emit(Dequeued(JOBS, 1, None))]
    assert made.length(JOBS) == 0


def test_taken_elements_are_dropped_unless_this_node_asked_for_them() -> None:
    """DDS-5: the element may be ours, with the confirmation still in flight."""
    for asked in (False, True):
        made = with_job()
        if asked:
            made.request(Dequeue(JOBS, 1))
        made.takers.receive(A, Minuted((Column("queue/b", 1, ()),)))
        made.observe(CaughtUp())
        assert made.length(JOBS) == asked
        discarded = [] if asked else [Ask(Discard(ID))]
        assert made.drain()[asked:] == [*discarded, Ask(Disregard(B, 1, ()))]


def test_element_that_arrives_after_it_was_settled_is_discarded() -> None:
    made = queue()
    made.takers.receive(A, Minuted((Column("queue/b", 1, ()),)))
    made.observe(Delivered(ID, PAYLOAD))
    assert (made.drain(), made.length(JOBS), made.dropped) == ([Ask(Discard(ID))], 0, 0)


def test_element_settled_before_it_arrives_is_discarded_at_once() -> None:
    made = queue()
    made.receive(B, Entrusted("b~1", 7, JOBS, b"job"))  # Discard does not wait for its record
    made.drain()
    made.observe(Settled("queue/b", 1, "another"))
    assert made.drain() == [Ask(Discard(ID))]


def test_old_elements_are_discarded_without_waiting_for_the_disk() -> None:
    made = with_job()
    made.receive(B, Entrusted("b~1", 7, JOBS, b"job"))
    made.takers.receive(A, Minuted((Column("queue/b", 1, ()),)))
    made.drain()
    made.observe(CaughtUp())
    assert made.drain() == [Ask(Discard(ID)), Ask(Disregard(B, 1, ()))]


def test_withdrawn_ticket_takes_nothing() -> None:
    """DDS-5"""
    made = queue()
    made.request(Dequeue(JOBS, 1, wait=True))
    made.request(Withdraw(JOBS, 1))
    made.observe(Delivered(ID, PAYLOAD))
    assert (made.drain(), made.length(JOBS)) == ([], 1)


def test_withdrawn_deposit_is_not_confirmed() -> None:
    made = queue()
    made.takers.observe(ViewChanged((A,)))
    made.request(Deposit(JOBS, 7, b"job"))
    made.request(Withdraw(JOBS, 7))
    made.drain()
    made.receive(B, Kept(7))
    assert made.drain() == []


class LastDice(Random):
    def randrange(self, *bounds: int) -> int:  # type: ignore[override]
        return bounds[0] - 1


def test_queue_asks_for_one_of_the_64_oldest_elements() -> None:
    made = PaxosQueue(A, LastDice(0), **layers(A))
    for number in range(1, 100):
        made.observe(Delivered(MessageId(B, number), PAYLOAD))
    made.request(Dequeue(JOBS, 1))
    assert made.drain() == [Ask(Decide("queue/b", 64, made.incarnation))]


def test_nodes_ask_for_different_elements_among_the_oldest() -> None:
    """Nodes pick different elements, and settled numbers have few gaps."""
    asked = set()
    for seed in range(200):
        made = queue(seed)
        for number in range(1, 2 * WINDOW):
            made.observe(Delivered(MessageId(B, number), PAYLOAD))
        made.request(Dequeue(JOBS, 1))
        [effect] = made.drain()
        assert isinstance(effect, Ask)
        assert isinstance(effect.request, Decide)
        asked.add(effect.request.number)
    assert max(asked) <= WINDOW
    assert len(asked) > WINDOW / 2


def test_deposit_goes_to_the_leader_and_is_confirmed_when_it_is_published() -> None:
    """DDS-5"""
    leader, guest = queue(), PaxosQueue(B, Random(1), **layers(B))
    guest.takers.observe(ViewChanged((A,)))
    guest.request(Deposit(JOBS, 7, b"job"))
    entrusted = Entrusted(guest.incarnation, 7, JOBS, b"job")
    assert guest.drain() == [Send(A, entrusted)]
    leader.receive(B, entrusted)
    noted, published = leader.drain()
    assert noted == Append(DepositNoted(guest.incarnation, 7), 1)
    assert isinstance(published, Ask)
    assert isinstance(published.request, Publish)
    leader.observe(Delivered(MessageId(A, 1), published.request.payload))
    kept = Kept(7, guest.incarnation)
    assert leader.drain() == [Send(B, kept, after=1)]
    guest.receive(A, kept)
    guest.receive(A, kept)
    assert guest.drain() == [Emit(Deposited(JOBS, 7, True))]


def test_answer_to_an_earlier_incarnation_does_not_confirm_a_deposit() -> None:
    """DDS-5: a restarted process numbers its tickets from 1 again."""
    earlier, guest = (PaxosQueue(B, Random(seed), **layers(B)) for seed in range(2))
    guest.takers.observe(ViewChanged((A,)))
    guest.request(Deposit(JOBS, 7, b"job"))
    guest.drain()
    guest.receive(A, Kept(7, earlier.incarnation))
    assert guest.drain() == []
    guest.receive(A, Kept(7))  # from a leader with an earlier version
    assert guest.drain() == [Emit(Deposited(JOBS, 7, True))]


def test_leader_confirms_its_own_deposit() -> None:
    leader = queue()
    leader.takers.observe(ViewChanged((A,)))
    leader.request(Deposit(JOBS, 7, b"job"))
    [published] = leader.drain()
    assert isinstance(published, Ask)
    assert isinstance(published.request, Publish)
    leader.observe(Delivered(MessageId(A, 1), published.request.payload))
    assert leader.drain() == [Emit(Deposited(JOBS, 7, True))]


def test_deposit_without_a_leader_fails() -> None:
    made = queue()
    made.request(Deposit(JOBS, 7, b"job"))
    assert made.drain() == [Emit(Deposited(JOBS, 7, False))]


def test_deposits_are_deduplicated_in_bounded_memory() -> None:
    made = queue()
    for _ in range(2):
        made.receive(B, Entrusted("b~1", 7, JOBS, b"job"))
    assert len([each for each in made.drain() if isinstance(each, Ask)]) == 1
    for ticket in range(10_000):
        made.receive(B, Entrusted("b~2", ticket, JOBS, b"job"))
    assert list(made.entrusted) == [DepositNoted("b~2", ticket) for ticket in range(10_000)]


def test_deposits_are_saved_every_ten_thousand_records() -> None:
    """DDS-5: the log is trimmed up to the snapshot."""
    made = queue()
    for ticket in range(9_999):
        made.receive(B, Entrusted("b~1", ticket, JOBS, b"job"))
    made.drain()
    made.observe(CaughtUp())
    assert made.drain() == []
    made.receive(B, Entrusted("b~1", 9_999, JOBS, b"job"))
    made.drain()
    made.observe(CaughtUp())
    noted = tuple(DepositNoted("b~1", ticket) for ticket in range(10_000))
    saved = [Snapshot(DepositsNoted(noted), 10_000), Trim("paxos_queue", 10_001)]
    assert made.drain() == saved
    made.observe(CaughtUp())
    assert made.drain() == []


@pytest.mark.parametrize("saved", [False, True])
def test_deposit_repeated_after_a_restart_is_added_once(saved: bool) -> None:
    """DDS-5: the leader has a record of the deposit on disk."""
    before, after = queue(), queue(seed=1)
    before.snapshot_every = 1 if saved else 100
    entrusted = Entrusted("b~1", 7, JOBS, b"job")
    before.receive(B, entrusted)
    before.observe(CaughtUp())
    kept = [each for each in before.drain() if isinstance(each, Append | Snapshot | Trim)]
    assert [type(each) for each in kept] == ([Append, Snapshot, Trim] if saved else [Append])
    for each in kept[saved:]:
        if not isinstance(each, Trim):
            found = each.state if isinstance(each, Snapshot) else each.record
            assert isinstance(found, DepositNoted | DepositsNoted)
            after.restore(found)
    after.receive(B, entrusted)
    assert after.drain() == []


def test_peek_returns_elements_without_taking_them() -> None:
    made = with_job()
    assert made.peek(JOBS, 5) == [b"job"]
    assert made.peek(JOBS, 0) == made.peek("nothing", 5) == []
    assert made.length(JOBS) == 1


def test_invalid_broadcast_is_dropped_and_counted() -> None:
    made = queue()
    made.observe(Delivered(ID, b"not an item"))
    assert (made.drain(), made.dropped) == ([], 1)


def test_queue_ignores_settled_locks() -> None:
    made = with_job()
    made.observe(Settled("lock/b", 1, made.incarnation))
    assert made.length(JOBS) == 1


def test_elements_from_a_restarted_diskless_process_can_be_taken() -> None:
    """DDS-5: other nodes count the element numbers of its earlier incarnation as taken."""
    heard: list[Dequeued] = []

    def listen(node: NodeId, event: object) -> None:
        if isinstance(event, Dequeued):
            heard.append(event)

    def guest(me: NodeId, rng: Random) -> Stack:
        times = {"heartbeat": 0.3, "suspect_after": 0.8, "lease": 1.0, "grace": 0.0}
        random = f"{rng.getrandbits(64):x}"
        peers = [keeper]
        return assemble(me, rng, peers=peers, acceptors=peers, incarnation=random, **times).stack

    keeper, visitor = NodeId("keeper"), NodeId("guest")
    sim = Simulation(1, listener=listen)
    sim.add(keeper, guest)
    sim.add(visitor, guest)
    for data in (b"first", b"second"):
        sim.run(until=sim.now + 2.0)
        sim.ask(visitor, Enqueue(JOBS, data))
        sim.ask(keeper, Dequeue(JOBS, 1, wait=True))
        sim.run(until=sim.now + 2.0)
        sim.bounce(visitor)
    assert [event.data for event in heard] == [b"first", b"second"]


def test_elements_and_takers_survive_if_all_nodes_crash() -> None:
    """DDS-5: every node has a disk."""
    heard: list[Dequeued] = []

    def listen(node: NodeId, event: object) -> None:
        if isinstance(event, Dequeued):
            heard.append(event)

    sim = Simulation(1, listener=listen)
    names = [NodeId(f"n{index}") for index in range(3)]
    for name in names:
        sim.add(name, paxos_stack(names), durable=True)
    sim.run(until=2.0)
    sim.ask(names[0], Enqueue(JOBS, b"taken"))
    sim.ask(names[1], Dequeue(JOBS, 1, wait=True))
    sim.run(until=4.0)
    sim.ask(names[0], Enqueue(JOBS, b"left"))
    sim.run(until=6.0)
    for name in names:
        sim.bounce(name, away=0.1)
    sim.run(until=8.0)
    for ticket in (2, 3):
        sim.ask(names[2], Dequeue(JOBS, ticket))
        sim.run(until=sim.now + 2.0)
    assert [event.data for event in heard] == [b"taken", b"left", None]
