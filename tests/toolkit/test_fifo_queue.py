"""FifoQueue: what its commands cost, and the order that it needs."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.kernel.protocol import NodeId, Send
from oncecast.toolkit.clock import Stamp
from oncecast.toolkit.events import Dequeue, Dequeued, Enqueue
from oncecast.toolkit.fifo_queue import Ack, Deq, Element, FifoQueue, Pop
from tests.toolkit.wires import Wires, names

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
JOBS = "jobs"


def group(count: int) -> Wires:
    members = names(count)
    return Wires({me: FifoQueue(me, Random(0), members=members) for me in members})


@pytest.mark.parametrize("count", range(2, 12))
def test_element_costs_one_message_for_each_other_member_to_put_in_and_three_to_take(
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
    """A has an element, and asks B and C for its turn."""
    queue = FifoQueue(A, Random(0), members=[A, B, C])
    queue.request(Enqueue(JOBS, b"job"))
    queue.request(Dequeue(JOBS, 1))
    queue.drain()
    return queue


def test_older_request_is_acknowledged_at_once_and_a_younger_one_after_the_pop() -> None:
    """DDS-5: who is let in has heard before what it must not take."""
    queue = asking()
    queue.receive(B, Deq(Stamp(1, B)))
    assert queue.drain() == [Send(B, Ack(Stamp(3, A)))]
    queue.receive(C, Deq(Stamp(9, C)))
    assert queue.drain() == []
    queue.receive(B, Ack(Stamp(10, B)))
    queue.receive(C, Ack(Stamp(10, C)))
    sent = [(effect.to, effect.message) for effect in queue.drain() if isinstance(effect, Send)]
    pop = Pop(JOBS, Stamp(1, A), Stamp(11, A))
    assert sent == [(B, pop), (C, pop), (C, Ack(Stamp(12, A)))]


def test_element_whose_pop_was_faster_is_not_added() -> None:
    queue = FifoQueue(A, Random(0), members=[A, B, C])
    queue.receive(C, Pop(JOBS, Stamp(1, B), Stamp(4, C)))
    queue.receive(B, Element(JOBS, Stamp(1, B), b"job"))
    assert queue.length(JOBS) == 0
    assert not queue.popped


def test_strangers_and_impossible_stamps_are_ignored_and_counted() -> None:
    queue = FifoQueue(A, Random(0), members=[A, B])
    queue.receive(C, Deq(Stamp(1, C)))
    queue.receive(B, Deq(Stamp(2**63 - 1, B)))
    assert (queue.drain(), queue.dropped) == ([], 2)
