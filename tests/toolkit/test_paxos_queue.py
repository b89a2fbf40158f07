"""PaxosQueue: which elements it asks for, and what survives on disk."""

from __future__ import annotations

from random import Random

from oncecast.kernel.protocol import Ask, Emit, NodeId
from oncecast.overlay.events import Delivered, MessageId, Publish
from oncecast.overlay.recovery import Recovery
from oncecast.runtime.simulated import Simulation
from oncecast.scenarios.toolkit_queue import paxos_stack
from oncecast.toolkit.events import CaughtUp, Decide, Dequeue, Dequeued, Enqueue, Settled
from oncecast.toolkit.paxos_queue import PaxosQueue
from oncecast.toolkit.synod import Synod
from oncecast.toolkit.synod_messages import Column, Minuted

A, B = NodeId("a"), NodeId("b")
JOBS = "jobs"
ID = MessageId(B, 1)


def queue() -> PaxosQueue:
    rng = Random(0)
    elements, takers = Recovery(A, rng), Synod(A, rng, acceptors=[A])
    return PaxosQueue(A, rng, elements=elements, takers=takers)


def with_job() -> PaxosQueue:
    made = queue()
    made.request(Enqueue(JOBS, b"job"))
    [published] = made.drain()
    assert isinstance(published, Ask)
    assert isinstance(published.request, Publish)
    made.observe(Delivered(ID, published.request.payload))
    return made


def test_no_more_elements_are_asked_for_than_tickets_wait() -> None:
    made = with_job()
    assert made.drain() == []
    made.request(Dequeue(JOBS, 1))
    assert made.drain() == [Ask(Decide("queue/b", 1, made.myself))]


def test_element_that_is_settled_for_another_is_gone_and_who_will_not_wait_is_told() -> None:
    """DDS-5"""
    made = with_job()
    made.request(Dequeue(JOBS, 1))
    made.request(Dequeue(JOBS, 2, wait=True))
    made.drain()
    made.observe(Settled("queue/b", 1, "somebody"))
    assert made.drain() == [Emit(Dequeued(JOBS, 1, None))]
    assert made.length(JOBS) == 0


def test_what_others_took_before_is_dropped_and_what_is_asked_for_is_kept() -> None:
    """DDS-5: the element may be ours, and the word of it still under way."""
    for asked in (False, True):
        made = with_job()
        if asked:
            made.request(Dequeue(JOBS, 1))
        made.takers.receive(A, Minuted((Column("queue/b", 1, ()),)))
        made.observe(CaughtUp())
        assert made.length(JOBS) == asked


def test_broadcast_that_is_no_element_is_dropped_and_counted() -> None:
    made = queue()
    made.observe(Delivered(ID, b"what is this"))
    assert (made.drain(), made.dropped) == ([], 1)


def test_locks_of_the_same_synod_are_none_of_its_business() -> None:
    made = with_job()
    made.observe(Settled("lock/b", 1, made.myself))
    assert made.length(JOBS) == 1


def test_elements_and_takers_survive_a_crash_of_all() -> None:
    """DDS-5: with disks."""
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
