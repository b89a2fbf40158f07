"""Test which operations a session history records."""

from __future__ import annotations

from itertools import count

from oncecast.client.session.local import Read, Settle
from oncecast.history.operation import Operation
from oncecast.history.recorder import Recorder
from oncecast.history.session import SessionHistory
from oncecast.wire import commands as do
from oncecast.wire import results
from tests.client.session.lone import Lone, chunk


class Recorded:
    """A session at offset 5 of a topic, with its history."""

    def __init__(self) -> None:
        self.lone = Lone().start()
        ticks = count()
        self._recorder = Recorder(lambda: float(next(ticks)))
        self._history = SessionHistory(self._recorder, "client", self.lone.session)
        self.ask(Read("t", "s"))
        self.lone.answer(self.lone.call, results.Attached(3, 5, 0, 9, 0, 1))
        self.hear()

    def ask(self, request: Read | Settle) -> None:
        self.lone.ask(request)
        self._history.asked(request)

    def hear(self) -> None:
        for event in self.lone.events:
            self._history.heard(event)

    @property
    def acks(self) -> list[Operation]:
        return [each for each in self._recorder.history if each.kind == "ack"]


def test_ack_answered_locally_by_the_session_is_not_recorded() -> None:
    """SVC-7: the node confirmed it before, and may have deleted the subscription since."""
    recorded = Recorded()
    recorded.ask(Settle(1, "t", "s", 5, 5))
    assert recorded.lone.sent == []
    assert recorded.acks == []


def test_ack_that_needs_confirmation_from_the_node_is_recorded() -> None:
    """SVC-7"""
    recorded = Recorded()
    recorded.lone.deliver(3, chunk(5, b"a", b"b"))
    recorded.hear()
    recorded.ask(Settle(1, "t", "s", 7, 7))
    assert recorded.lone.call.command == do.Ack("t", "s", 3, 7)
    (ack,) = recorded.acks
    assert (ack.upto, ack.returned) == (7, None)
