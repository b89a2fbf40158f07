"""End transactions whose topics can be in several groups of a ring (TXN-2).

The module `wire.ring_transactions` describes the two phases. The session sends the commands:

    PrepareTransaction to all participants ──▶ DecideTransaction ──▶ ResolveTransaction to all
                 │ refused, or no answer in time       │ refused
                 ▼                                     ▼
              EndTransaction(commit=False) to the coordinator and all participants

The decision is repeated until it is answered, and it is sent only after all participants are
prepared. If its outcome is unknown, the session tells nothing to the participants. Their leaders
then ask the coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecast.client.session.calls import Calls
from oncecast.client.session.local import EndAll, Finished, NoAnswer, Outcome
from oncecast.kernel.protocol import Protocol
from oncecast.wire.errors import Denied, NotDecided
from oncecast.wire.results import PublishedRange, TransactionEnded, TransactionPrepared
from oncecast.wire.ring_transactions import (
    HOLD_US,
    DecideTransaction,
    PrepareTransaction,
    ResolveTransaction,
    Share,
)
from oncecast.wire.transactions import EndTransaction

if TYPE_CHECKING:
    from oncecast.client.session.transacting import Transactions

PREPARE_WITHIN = HOLD_US / 1e6  # seconds; after that, the coordinator may abort the transaction


def share_of(command: EndTransaction) -> Share:
    return Share(command.topic, command.epoch, command.number)


class Ending:
    """A transaction that is ending. Its first share belongs to the coordinator."""

    def __init__(self, ticket: int, shares: tuple[EndTransaction, ...]) -> None:
        self.ticket, self.own, self.others = ticket, shares[0], shares[1:]
        self.waiting = {share_of(each) for each in self.others}  # participants without an answer
        self.over = False  # whether the application has the outcome
        self.ranges: dict[str, tuple[PublishedRange, ...]] = {}  # by tag


def refusal_of(source: str, outcome: Outcome) -> Outcome:
    """Return why a transaction was aborted. It was not decided, so the outcome is known."""
    if isinstance(outcome, NoAnswer):
        return Denied() if outcome.denied else NotDecided(source)
    return NotDecided(source) if isinstance(outcome, TransactionEnded) else outcome


class RingTransactions:
    def __init__(self, host: Protocol, calls: Calls, sources: Transactions) -> None:
        self._host, self._calls, self._sources = host, calls, sources

    def end(self, request: EndAll) -> None:
        ending = Ending(request.ticket, request.shares)
        coordinator = share_of(ending.own)
        for each in ending.others:
            fields = {name: getattr(each, name) for name in EndTransaction.__struct_fields__}
            fields["finished"] = self._sources.finished_of(each)
            prepare = PrepareTransaction(**fields, coordinator=coordinator)
            self._calls.do(
                prepare,
                lambda outcome, share=each: self._prepared(ending, share, outcome),  # type: ignore[misc]
                PREPARE_WITHIN,
            )

    def _prepared(self, ending: Ending, share: EndTransaction, outcome: Outcome) -> None:
        self._sources.heard(share, outcome)
        if ending.over:
            return
        if not isinstance(outcome, TransactionPrepared):
            self._abort(ending, refusal_of(share.source, outcome))
            return
        ending.waiting.discard(share_of(share))
        if not ending.waiting:
            self._decide(ending)

    # -- decide --

    def _decide(self, ending: Ending) -> None:
        own, participants = ending.own, tuple([share_of(each) for each in ending.others])
        fields = {name: getattr(own, name) for name in EndTransaction.__struct_fields__}
        fields["finished"] = self._sources.finished_of(own)
        decide = DecideTransaction(**fields, participants=participants)
        self._calls.do(decide, lambda outcome: self._decided(ending, outcome))

    def _decided(self, ending: Ending, outcome: Outcome) -> None:
        self._sources.heard(ending.own, outcome)
        if isinstance(outcome, NoAnswer):
            self._finish(ending, outcome)
            for each in ending.others:
                self._sources.settled(each, outcome)
        elif isinstance(outcome, TransactionEnded) and outcome.committed:
            ending.ranges[ending.own.topic] = outcome.ranges
            self._resolve(ending)
        else:
            self._abort(ending, refusal_of(ending.own.source, outcome))
            return
        self._sources.settled(ending.own, outcome)

    def _resolve(self, ending: Ending) -> None:
        ending.waiting = {share_of(each) for each in ending.others}
        for each in ending.others:
            where = (each.source, each.topic, each.epoch, each.number)
            self._calls.do(
                ResolveTransaction(*where, 0, commit=True),
                lambda outcome, share=each: self._resolved(ending, share, outcome),  # type: ignore[misc]
            )

    def _resolved(self, ending: Ending, share: EndTransaction, outcome: Outcome) -> None:
        """Collect the offsets. If the client is refused now, the group's leader publishes."""
        self._sources.settled(share, outcome)
        if isinstance(outcome, TransactionEnded):
            ending.ranges[share.topic] = outcome.ranges
        ending.waiting.discard(share_of(share))
        if not ending.waiting:
            tags = [ending.own.topic, *(each.topic for each in ending.others)]
            ranges = tuple([found for tag in tags for found in ending.ranges.get(tag, ())])
            self._finish(ending, TransactionEnded(True, ranges, already=False))

    # -- abort --

    def _abort(self, ending: Ending, why: Outcome) -> None:
        """Tell the application, and drop all shares. A late copy of a prepare finds its result."""
        self._finish(ending, why)
        for each in (ending.own, *ending.others):
            command = EndTransaction(
                each.source,
                each.topic,
                each.epoch,
                each.number,
                self._sources.finished_of(each),
                0,
                commit=False,
            )
            self._calls.do(
                command,
                lambda outcome, share=each: self._sources.settled(share, outcome),  # type: ignore[misc]
            )

    def _finish(self, ending: Ending, outcome: Outcome) -> None:
        if not ending.over:
            ending.over = True
            self._host.emit(Finished(ending.ticket, outcome), after=0)
