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


class AckCollector:
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
    """SVC-3: the acks from that period share one call."""
    collector = AckCollector()
    collector.acks.soon()
    assert (collector.acks.due, collector.session.dues) == (NEVER, [])
    collector.acks.advance(5)
    collector.acks.advance(4)
    collector.acks.soon()
    collector.session.now = 10.05
    collector.acks.soon()
    assert (collector.acks.due, collector.session.dues) == (10.1, [10.1])
    collector.acks.call()
    assert (collector.acks.due, collector.calls()) == (NEVER, [Ack("t", "s", 7, 5)])
    collector.acks.soon()
    assert collector.acks.due == NEVER  # the node already has the ack


def test_acks_sent_with_a_fetch_need_no_separate_call() -> None:
    """SVC-3"""
    collector = AckCollector()
    collector.acks.advance(5)
    collector.acks.soon()
    collector.acks.carried()
    collector.acks.soon()
    assert (collector.acks.due, collector.calls()) == (NEVER, [])


def test_only_one_ack_call_is_in_flight_at_a_time() -> None:
    """SVC-3"""
    collector = AckCollector()
    collector.acks.advance(5)
    collector.acks.call()
    collector.acks.advance(6)
    collector.acks.call()
    assert collector.calls() == [Ack("t", "s", 7, 5)]
    collector.answer(Acked(5))
    assert (collector.acks.due, collector.session.dues) == (10.1, [10.1])
    collector.acks.call()
    assert collector.calls() == [Ack("t", "s", 7, 5), Ack("t", "s", 7, 6)]


def test_ticket_finishes_when_the_node_confirms_its_ack() -> None:
    """SVC-3: the ticket finishes at once, without waiting for the disk."""
    collector = AckCollector()
    collector.acks.settle(1, 3)
    assert collector.session.drain() == [Emit(Finished(1, Acked(3)))]
    collector.acks.advance(5)
    collector.acks.settle(2, 4)
    collector.acks.settle(
        3, 9
    )  # a ticket beyond the acknowledged offset waits only for that offset
    collector.acks.settle(4, 5)
    assert (collector.session.drain(), collector.calls()) == ([], [Ack("t", "s", 7, 5)])
    collector.acks.advance(6)
    collector.answer(Acked(4))
    assert collector.session.drain() == [Emit(Finished(2, Acked(4)))]
    # The remaining acks are sent at once, and no other call is due.
    assert collector.calls()[1:] == [Ack("t", "s", 7, 6)]
    assert (collector.acks.due, collector.session.dues) == (NEVER, [])
    collector.answer(Acked(6))
    assert collector.session.drain() == [Emit(Finished(ticket, Acked(6))) for ticket in (3, 4)]
    assert len(collector.calls()) == 2


def test_late_answer_does_not_move_the_cursor_back() -> None:
    collector = AckCollector()
    collector.acks.advance(5)
    collector.acks.call()
    collector.answer(Acked(1))
    collector.acks.settle(1, 3)
    assert collector.session.drain() == [Emit(Finished(1, Acked(3)))]


def test_refused_ack_is_reported_and_ends_the_wait() -> None:
    """SVC-8"""
    collector = AckCollector()
    collector.acks.advance(5)
    collector.acks.settle(1, 5)
    collector.answer(Fenced(8))
    assert collector.refused == [(collector.acks, Fenced(8))]
    assert collector.session.drain() == []
    collector.acks.void(Fenced(8))
    collector.acks.void(Fenced(9))
    assert collector.session.drain() == [Emit(Finished(1, Fenced(8)))]
