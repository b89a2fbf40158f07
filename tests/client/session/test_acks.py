"""Test how a reader's acks reach the node."""

from __future__ import annotations

from typing import Any

from oncecast.client.session.acks import Acks
from oncecast.client.session.local import NEVER, Finished
from oncecast.kernel.protocol import Emit
from oncecast.wire.commands import Ack
from oncecast.wire.errors import Fenced
from oncecast.wire.results import Acked
from tests.client.session.standin import StandIn


class Desk:
    """Collects the acks of one epoch, starting at offset 3."""

    def __init__(self) -> None:
        self.session = StandIn()
        self.session.now = 10.0
        self.refused: list[Any] = []
        refused = lambda acks, outcome: self.refused.append((acks, outcome))  # noqa: E731
        self.acks = Acks(
            self.session, self.session.alarm, self.session.calls, "t", "s", 7, 3, refused
        )

    def calls(self) -> list[Ack]:
        return [command for command, _ in self.session.called]

    def answer(self, outcome: Any) -> None:
        self.session.called[-1][1](outcome)


def test_new_acks_are_sent_within_a_tenth_of_a_second() -> None:
    """SVC-3: acks made before then share one call."""
    desk = Desk()
    desk.acks.soon()
    assert (desk.acks.due, desk.session.dues) == (NEVER, [])
    desk.acks.advance(5)
    desk.acks.advance(4)
    desk.acks.soon()
    desk.session.now = 10.05
    desk.acks.soon()
    assert (desk.acks.due, desk.session.dues) == (10.1, [10.1])
    desk.acks.call()
    assert (desk.acks.due, desk.calls()) == (NEVER, [Ack("t", "s", 7, 5)])
    desk.acks.soon()
    assert desk.acks.due == NEVER  # the node already has the ack


def test_acks_sent_with_a_fetch_need_no_separate_call() -> None:
    """SVC-3"""
    desk = Desk()
    desk.acks.advance(5)
    desk.acks.soon()
    desk.acks.carried()
    desk.acks.soon()
    assert (desk.acks.due, desk.calls()) == (NEVER, [])


def test_only_one_ack_call_is_in_flight_at_a_time() -> None:
    """SVC-3"""
    desk = Desk()
    desk.acks.advance(5)
    desk.acks.call()
    desk.acks.advance(6)
    desk.acks.call()
    assert desk.calls() == [Ack("t", "s", 7, 5)]
    desk.answer(Acked(5))
    assert (desk.acks.due, desk.session.dues) == (10.1, [10.1])
    desk.acks.call()
    assert desk.calls() == [Ack("t", "s", 7, 5), Ack("t", "s", 7, 6)]


def test_ticket_finishes_when_the_node_confirms_its_ack() -> None:
    """SVC-3: the ticket finishes at once, without waiting for the disk."""
    desk = Desk()
    desk.acks.settle(1, 3)
    assert desk.session.drain() == [Emit(Finished(1, Acked(3)))]
    desk.acks.advance(5)
    desk.acks.settle(2, 4)
    desk.acks.settle(3, 9)  # a ticket beyond the acknowledged offset waits only for that offset
    desk.acks.settle(4, 5)
    assert (desk.session.drain(), desk.calls()) == ([], [Ack("t", "s", 7, 5)])
    desk.acks.advance(6)
    desk.answer(Acked(4))
    assert desk.session.drain() == [Emit(Finished(2, Acked(4)))]
    # The remaining acks are sent at once, and no other call is due.
    assert desk.calls()[1:] == [Ack("t", "s", 7, 6)]
    assert (desk.acks.due, desk.session.dues) == (NEVER, [])
    desk.answer(Acked(6))
    assert desk.session.drain() == [Emit(Finished(ticket, Acked(6))) for ticket in (3, 4)]
    assert len(desk.calls()) == 2


def test_late_answer_does_not_move_the_cursor_back() -> None:
    desk = Desk()
    desk.acks.advance(5)
    desk.acks.call()
    desk.answer(Acked(1))
    desk.acks.settle(1, 3)
    assert desk.session.drain() == [Emit(Finished(1, Acked(3)))]


def test_refused_ack_is_reported_and_ends_the_wait() -> None:
    """SVC-8"""
    desk = Desk()
    desk.acks.advance(5)
    desk.acks.settle(1, 5)
    desk.answer(Fenced(8))
    assert desk.refused == [(desk.acks, Fenced(8))]
    assert desk.session.drain() == []
    desk.acks.void(Fenced(8))
    desk.acks.void(Fenced(9))
    assert desk.session.drain() == [Emit(Finished(1, Fenced(8)))]
