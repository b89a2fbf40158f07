"""Held: reads that wait for the leader's lease."""

from __future__ import annotations

from oncecast.broker.held import Held
from oncecast.kernel.protocol import Later, NodeId, Value
from tests.client.session.standin import StandIn

ANN, BOB = NodeId("ann"), NodeId("bob")


class Due(Value):
    """Timer."""


class Question(Value):
    number: int


def test_timer_is_set_once_until_the_questions_are_taken() -> None:
    """SVC-3: setting it again would put it off."""
    protocol = StandIn()
    held: Held[Question] = Held(protocol, Due())
    for _ in range(2):
        held.add(ANN, Question(1))
        held.add(BOB, Question(1))
        assert protocol.drain() == [Later(0.02, Due())]
        held.watch()
        assert protocol.drain() == []
        assert held.take() == [(ANN, Question(1)), (BOB, Question(1))]
        assert held.take() == []


def test_questions_of_a_client_that_is_gone_are_forgotten() -> None:
    held: Held[Question] = Held(StandIn(), Due())
    for client in (ANN, BOB):
        held.add(client, Question(1))
    held.forget(ANN)
    assert held.take() == [(BOB, Question(1))]


def test_at_most_a_thousand_questions_are_held() -> None:
    held: Held[Question] = Held(StandIn(), Due())
    for number in range(1001):
        held.add(ANN, Question(number))
    assert held.take() == [(ANN, Question(number)) for number in range(1000)]
