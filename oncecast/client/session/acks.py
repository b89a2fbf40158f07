"""What a reader has acknowledged, and how far the node knows it; for one epoch only.

Acks ride in a Fetch when one is due; otherwise they go as a call, one at a time. Only the answer
to a call confirms them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from oncecast.client.session.local import NEVER, Finished, Outcome
from oncecast.wire.commands import Ack
from oncecast.wire.errors import AnyRefusal
from oncecast.wire.results import Acked

if TYPE_CHECKING:
    from oncecast.client.session.client import ClientSession

DELAY = 0.1  # acks of so long share a call


class Acks:
    """`refused` hears why an ack was not taken."""

    def __init__(
        self,
        session: ClientSession,
        topic: str,
        subscription: str,
        epoch: int,
        offset: int,
        refused: Callable[[Acks, Outcome], None],
    ) -> None:
        self._session, self._refused = session, refused
        self._topic, self._subscription, self._epoch = topic, subscription, epoch
        self.upto = offset  # acknowledged by the application: all before it
        self._told = offset  # of that: sent to the node
        self.confirmed = offset  # of that: the node has answered that it knows
        self._calling = False
        self._waiting: list[tuple[int, int]] = []  # tickets, and the ack that each waits for
        self.due = NEVER

    def advance(self, upto: int) -> None:
        self.upto = max(self.upto, upto)

    def command(self) -> Ack:
        return Ack(self._topic, self._subscription, self._epoch, self.upto)

    def carried(self) -> None:
        """A Fetch has taken them along."""
        self._told, self.due = self.upto, NEVER

    def soon(self) -> None:
        """Nothing takes them along right now."""
        if self.upto > self._told and self.due == NEVER:
            self.due = self._session.now + DELAY
            self._session.due(self.due)

    def settle(self, ticket: int, upto: int) -> None:
        """Have the node say that it knows; the ticket is told."""
        self._waiting.append((ticket, min(upto, self.upto)))
        self._tell()

    def call(self) -> None:
        self.due = NEVER
        if not self._calling:
            self._calling, self._told = True, self.upto
            self._session.calls.do(self.command(), self._answered)

    def _answered(self, outcome: Outcome) -> None:
        self._calling = False
        if isinstance(outcome, Acked):
            self.confirmed = max(self.confirmed, outcome.cursor)
            self._tell()
            self.soon()
        else:
            self._refused(self, outcome)

    def _tell(self) -> None:
        waiting, confirmed = self._waiting, self.confirmed
        self._waiting = [each for each in waiting if each[1] > confirmed]
        for ticket, upto in waiting:
            if upto <= confirmed:
                self._session.emit(Finished(ticket, Acked(confirmed)), after=0)
        if self._waiting:
            self.call()

    def void(self, outcome: Acked | AnyRefusal) -> None:
        """The epoch is over: nobody need wait any more."""
        for ticket, _ in self._waiting:
            self._session.emit(Finished(ticket, outcome), after=0)
        self._waiting.clear()
