"""Reads wait in a queue until the leader has a lease."""

from __future__ import annotations

from oncecast.broker.lease_queue import QUEUED_OF_CLIENT_MAX, TURN, LeaseQueue
from oncecast.kernel.protocol import Later, NodeId, Value
from tests.client.session.standin import StandIn

ANN, BOB = NodeId("ann"), NodeId("bob")


class Due(Value):
    """The lease timer."""


class Question(Value):
    number: int


def test_lease_timer_is_set_once_for_all_waiting_reads() -> None:
    """SVC-3: setting the timer again would delay the answers."""
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


def test_reads_from_a_disconnected_client_are_dropped() -> None:
    lease_queue: LeaseQueue[Question] = LeaseQueue(StandIn(), Due())
    for client in (ANN, BOB):
        lease_queue.add(client, Question(1))
    lease_queue.forget(ANN)
    assert lease_queue.take() == [(BOB, Question(1))]


def test_at_most_a_thousand_reads_are_queued() -> None:
    lease_queue: LeaseQueue[Question] = LeaseQueue(StandIn(), Due())
    clients = [NodeId(f"client/{number}") for number in range(1001)]
    for client in clients:
        lease_queue.add(client, Question(1))
    assert lease_queue.take() == [(client, Question(1)) for client in clients[:1000]]


def test_single_client_cannot_fill_the_queue() -> None:
    """SEC-3"""
    lease_queue: LeaseQueue[Question] = LeaseQueue(StandIn(), Due())
    for _ in range(2):
        for number in range(QUEUED_OF_CLIENT_MAX + 1):
            lease_queue.add(ANN, Question(number))
            lease_queue.add(ANN, Question(number))
        lease_queue.add(BOB, Question(1))
        assert len(lease_queue.take()) == QUEUED_OF_CLIENT_MAX + 1


def test_waiting_reads_are_answered_in_limited_batches() -> None:
    """SEC-3: answering many reads at once would block the event loop."""
    protocol = StandIn()
    lease_queue: LeaseQueue[Question] = LeaseQueue(protocol, Due())
    for number in range(TURN + 1):
        lease_queue.add(ANN, Question(number))
    assert protocol.drain() == [Later(0.02, Due())]
    assert lease_queue.due(leased=False) == []
    assert protocol.drain() == [Later(0.02, Due())]
    assert lease_queue.due(leased=True) == [(ANN, Question(number)) for number in range(TURN)]
    assert protocol.drain() == [Later(0.0, Due())]
    assert lease_queue.due(leased=True) == [(ANN, Question(TURN))]
    assert lease_queue.due(leased=False) == []
    assert protocol.drain() == []
    assert lease_queue._of_client == {}


def test_late_read_does_not_delay_the_reads_that_wait_for_their_turn() -> None:
    """SVC-3: the timer fires at once, and must not be set again."""
    protocol = StandIn()
    lease_queue: LeaseQueue[Question] = LeaseQueue(protocol, Due())
    for number in range(TURN + 1):
        lease_queue.add(ANN, Question(number))
    lease_queue.due(leased=True)
    protocol.drain()
    lease_queue.add(BOB, Question(1))
    assert protocol.drain() == []


def test_client_that_returns_may_queue_reads_again() -> None:
    """SEC-3: the limit counts only reads that wait."""
    lease_queue: LeaseQueue[Question] = LeaseQueue(StandIn(), Due())
    for number in range(QUEUED_OF_CLIENT_MAX):
        lease_queue.add(ANN, Question(number))
    lease_queue.forget(ANN)
    lease_queue.add(ANN, Question(1))
    assert lease_queue.take() == [(ANN, Question(1))]
