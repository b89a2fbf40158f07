"""Reads that wait for the lease of the leader."""

from __future__ import annotations

from oncecast.broker.lease_queue import LeaseQueue
from oncecast.kernel.protocol import Later, NodeId, Value
from tests.client.session.standin import StandIn

ANN, BOB = NodeId("ann"), NodeId("bob")


class Due(Value):
    """Timer."""


class Question(Value):
    number: int


def test_lease_timer_is_set_once_per_group_of_waiting_reads() -> None:
    """SVC-3: setting it again would delay it."""
    protocol = StandIn()
    lease_queue: LeaseQueue[Question] = LeaseQueue(protocol, Due())
    for _ in range(2):
        lease_queue.add(ANN, Question(1))
        lease_queue.add(BOB, Question(1))
        assert protocol.drain() == [Later(0.02, Due())]
        lease_queue.watch()
        assert protocol.drain() == []
        assert lease_queue.take() == [(ANN, Question(1)), (BOB, Question(1))]
        assert lease_queue.take() == []


def test_reads_of_a_disconnected_client_are_forgotten() -> None:
    lease_queue: LeaseQueue[Question] = LeaseQueue(StandIn(), Due())
    for client in (ANN, BOB):
        lease_queue.add(client, Question(1))
    lease_queue.forget(ANN)
    assert lease_queue.take() == [(BOB, Question(1))]


def test_at_most_a_thousand_reads_are_queued() -> None:
    lease_queue: LeaseQueue[Question] = LeaseQueue(StandIn(), Due())
    for number in range(1001):
        lease_queue.add(ANN, Question(number))
    assert lease_queue.take() == [(ANN, Question(number)) for number in range(1000)]
