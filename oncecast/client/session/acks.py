"""The acknowledgements of one reader in one epoch, and how many of them the node has confirmed.

If a Fetch is due, it carries the acknowledgements. Otherwise a call carries them, one call at a
time. Only the answer to a call confirms them.
"""

from __future__ import annotations

from collections.abc import Callable

from oncecast.client.session.alarm import Alarm
from oncecast.client.session.calls import Calls
from oncecast.client.session.local import NEVER, Finished, NoAnswer, Outcome
from oncecast.kernel.protocol import Protocol
from oncecast.wire.commands import Ack
from oncecast.wire.errors import AnyRefusal, Denied
from oncecast.wire.results import Acked

DELAY = 0.1  # seconds to collect acks before they are sent in one call


class Acks:
    """The acks of one reader. `refused` is called if the node refuses an ack."""

    def __init__(
        self,
        host: Protocol,
        alarm: Alarm,
        calls: Calls,
        topic: str,
        subscription: str,
        epoch: int,
        offset: int,
        refused: Callable[[Acks, Outcome], None],
    ) -> None:
        self._host, self._alarm, self._calls, self._refused = host, alarm, calls, refused
        self._topic, self._subscription, self._epoch = topic, subscription, epoch
        self.upto = offset  # the application has acknowledged all messages before this offset
        self._sent = offset  # acks for all messages before this offset were sent
        self._sent_before = offset  # the same, without the first copy of the call in flight
        self.confirmed = offset  # the node has confirmed the acks before this offset
        self._calling = False
        # Tickets of acks, each with the offset that it waits for.
        self._waiting: list[tuple[int, int]] = []
        self.due = NEVER

    def advance(self, upto: int) -> None:
        self.upto = max(self.upto, upto)

    def command(self) -> Ack:
        return Ack(self._topic, self._subscription, self._epoch, self.upto)

    def carried(self) -> None:
        """Record that a Fetch has carried the acks."""
        self._sent = self._sent_before = self.upto
        self.due = NEVER

    def soon(self) -> None:
        """Send new acks within DELAY, unless a Fetch carries them earlier."""
        if self.upto > self._sent and self.due == NEVER:
            self.due = self._host.now + DELAY
            self._alarm.due(self.due)

    def settle(self, ticket: int, upto: int) -> None:
        """Answer the ticket once the node has confirmed the acks before `upto`."""
        self._waiting.append((ticket, min(upto, self.upto)))
        self._answer_confirmed()

    def call(self) -> None:
        self.due = NEVER
        if not self._calling:
            self._calling, self._sent_before, self._sent = True, self._sent, self.upto
            self._calls.do(self.command(), self._answered)

    def _answered(self, outcome: Outcome) -> None:
        self._calling = False
        if isinstance(outcome, Acked):
            self.confirmed = max(self.confirmed, outcome.cursor)
            self._answer_confirmed()
            self.soon()
        else:
            if isinstance(outcome, Denied):
                self._sent = self._sent_before  # no copy of this call has run
            self._refused(self, outcome)

    def _answer_confirmed(self) -> None:
        waiting, confirmed = self._waiting, self.confirmed
        self._waiting = [each for each in waiting if each[1] > confirmed]
        for ticket, upto in waiting:
            if upto <= confirmed:
                self._host.emit(Finished(ticket, Acked(confirmed)), after=0)
        if self._waiting:
            self.call()

    def denied(self, outcome: Outcome) -> Outcome | None:
        """Return what to report if the node has denied the last ack, or None if all is confirmed.

        The node may have executed acks that were sent before, or an earlier copy of this one.
        """
        copied = isinstance(outcome, NoAnswer) and outcome.denied
        if self.upto <= self.confirmed or not (copied or isinstance(outcome, Denied)):
            return None
        return outcome if self._sent <= self.confirmed else NoAnswer(NEVER, denied=True)

    def void(self, outcome: Acked | AnyRefusal) -> None:
        """Answer all tickets with `outcome`, because the epoch is over.

        If the reader was denied, the node may still have executed the acks that were sent.
        """
        for ticket, upto in self._waiting:
            unknown = isinstance(outcome, Denied) and upto <= self._sent
            answer = NoAnswer(NEVER, denied=True) if unknown else outcome
            self._host.emit(Finished(ticket, answer), after=0)
        self._waiting.clear()
