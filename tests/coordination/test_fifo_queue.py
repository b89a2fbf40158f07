"""Test the cost of FifoQueue commands and the order of its messages."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.coordination.protocols.clock import Stamp
from oncecast.coordination.protocols.events import Dequeue, Dequeued, Enqueue, Withdraw
from oncecast.coordination.protocols.fifo_queue import Ack, Deq, Element, FifoQueue, Pop
from oncecast.kernel.protocol import Emit, NodeId, Send
from tests.coordination.wires import Wires, names

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
JOBS = "jobs"


def group(count: int) -> Wires:
    members = names(count)
    return Wires({me: FifoQueue(me, Random(0), members=members) for me in members})


@pytest.mark.parametrize("count", range(2, 12))
def test_enqueue_costs_one_message_per_peer_and_dequeue_three(
    count: int,
) -> None:
    """DDS-5"""
    wires = group(count)
    one, *_, last = names(count)
    wires.ask(one, Enqueue(JOBS, b"job"))
    wires.run()
    assert len(wires.sent) == count - 1
    wires.ask(last, Dequeue(JOBS, 1))
    wires.run()
    assert wires.events == [(last, Dequeued(JOBS, 1, b"job"))]
    assert len(wires.sent) == 4 * (count - 1)


def asking() -> FifoQueue:
    """Return A's queue, which has an element and has asked B and C for its turn."""
    queue = FifoQueue(A, Random(0), members=[A, B, C])
    queue.request(Enqueue(JOBS, b"job"))
    queue.request(Dequeue(JOBS, 1))
    queue.drain()
    return queue


def test_older_request_is_acknowledged_at_once_and_a_newer_one_after_the_pop() -> None:
    """DDS-5: a member knows which element was taken before its turn starts."""
    queue = asking()
    queue.receive(B, Deq(Stamp(1, B)))
    assert queue.drain() == [Send(B, Ack(Stamp(3, A)))]
    queue.receive(C, Deq(Stamp(9, C)))
    assert queue.drain() == []
    queue.receive(B, Ack(Stamp(10, B)))
    queue.receive(C, Ack(Stamp(10, C)))
    pop = Pop(JOBS, Stamp(1, A), Stamp(11, A))
    assert queue.drain() == [
        Send(B, pop),
        Send(C, pop),
        Emit(Dequeued(JOBS, 1, b"job")),
        Send(C, Ack(Stamp(12, A))),
    ]


def test_each_turn_takes_the_oldest_element_from_one_queue() -> None:
    """DDS-5"""
    queue = FifoQueue(A, Random(0), members=[A, B])
    for name, time in ((JOBS, 5), (JOBS, 4), ("other", 3)):
        queue.receive(B, Element(name, Stamp(time, B), b"%d" % time))
    queue.request(Dequeue(JOBS, 1))
    queue.request(Dequeue("other", 2))
    assert queue.drain() == [Send(B, Deq(Stamp(6, A)))]
    queue.receive(B, Ack(Stamp(7, B)))
    assert queue.drain() == [
        Send(B, Pop(JOBS, Stamp(4, B), Stamp(8, A))),
        Emit(Dequeued(JOBS, 1, b"4")),
        Send(B, Deq(Stamp(9, A))),  # the next turn is for the other queue
    ]


def test_withdrawn_ticket_does_not_ask_for_a_turn() -> None:
    """DDS-5"""
    queue = FifoQueue(A, Random(0), members=[A, B])
    queue.request(Dequeue(JOBS, 1, wait=True))
    queue.request(Withdraw(JOBS, 1))
    queue.receive(B, Element(JOBS, Stamp(1, B), b"job"))
    assert (queue.drain(), queue.length(JOBS)) == ([], 1)


def test_element_that_arrives_after_its_pop_is_not_added() -> None:
    queue = FifoQueue(A, Random(0), members=[A, B, C])
    queue.receive(C, Pop(JOBS, Stamp(1, B), Stamp(4, C)))
    queue.receive(B, Element(JOBS, Stamp(1, B), b"job"))
    assert queue.length(JOBS) == 0
    assert not queue.popped


def test_unknown_senders_and_invalid_stamps_are_ignored_and_counted() -> None:
    queue = FifoQueue(A, Random(0), members=[A, B])
    queue.receive(C, Deq(Stamp(1, C)))
    queue.receive(B, Deq(Stamp(2**63 - 1, B)))
    assert (queue.drain(), queue.dropped) == ([], 2)
