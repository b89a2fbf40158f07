"""Number the transactions of this client, and end each of them once (TXN-1).

Rules
- The first transaction of a source opens it. This fences an older process with the same source.
- A transaction gets its number when it stages its first part, or else when it commits. Several
  transactions of a source can be in flight, up to a limit. Later ones wait.
- A commit is repeated until it is answered. So its outcome is known, whatever fails in between.
- With each command, the node learns which results the client has. It then forgets them.
- Once a source is fenced, all its later transactions are refused.
- On a ring, each tag has its own record. A transaction with several tags has a number for each of
  them: see `ring_transacting`.
- The node deletes the record of a source that is idle for a long time. So the client opens an idle
  source again before the next transaction, and takes it over from no other process.
"""

from __future__ import annotations

from collections import deque

import msgspec

from oncecast.client.session.calls import Calls
from oncecast.client.session.identity import Identity
from oncecast.client.session.local import Begin, Begun, End, Finished, Outcome
from oncecast.client.session.ring_transacting import RingTransactions
from oncecast.kernel.protocol import Protocol
from oncecast.kernel.topic_tag import tag_of
from oncecast.wire.commands import CloseSource, OpenSource
from oncecast.wire.errors import Fenced
from oncecast.wire.results import SourceOpened
from oncecast.wire.transactions import UNFINISHED_MAX, EndTransaction

IDLE = 3600.0  # seconds; a node keeps an idle record much longer


class Source:
    """A source that this client has opened."""

    __slots__ = ("epoch", "fenced", "name", "next", "tag", "topic", "unfinished", "used", "waiting")

    def __init__(self, name: str, topic: str, epoch: int, *, ring: bool, now: float) -> None:
        self.name, self.topic, self.epoch = name, topic, epoch
        self.tag = topic if ring else ""  # the tag of all topics in its transactions
        self.next = 0  # number of the next transaction
        # Numbers of transactions without a result, lowest first.
        self.unfinished: dict[int, None] = {}
        self.waiting: deque[Begin] = deque()
        self.fenced: Fenced | None = None
        self.used = now

    @property
    def finished(self) -> int:
        """Return the lowest number without a result."""
        return next(iter(self.unfinished), self.next)


class Transactions:
    def __init__(self, host: Protocol, identity: Identity, calls: Calls) -> None:
        self._host, self._identity, self._calls = host, identity, calls
        self._sources: dict[tuple[str, str], Source] = {}  # by name and tag
        self._opening: dict[str, list[Begin]] = {}  # requests that wait for an open, by name
        self.across = RingTransactions(host, calls, self)

    # -- begin --

    def begin(self, begin: Begin) -> None:
        if begin.source in self._opening:
            self._opening[begin.source].append(begin)
            return
        source = self._find(begin.source, begin.topic)
        if source is None:
            self._open(begin)
        elif source.fenced is None and not source.unfinished and self._is_idle(source):
            self._open(begin, source)
        else:
            self._number(source, begin)

    def _find(self, name: str, topic: str) -> Source | None:
        return self._sources.get((name, "")) or self._sources.get((name, tag_of(topic)))

    def _is_idle(self, source: Source) -> bool:
        return self._host.now >= source.used + IDLE

    def _number(self, source: Source, begin: Begin) -> None:
        if source.fenced is not None:
            self._finish(begin.ticket, source.fenced)
        elif source.next - source.finished >= UNFINISHED_MAX:
            source.waiting.append(begin)
        else:
            number, source.used = source.next, self._host.now
            source.next += 1
            source.unfinished[number] = None
            begun = Begun(begin.ticket, source.epoch, number, source.topic, source.tag)
            self._host.emit(begun, after=0)

    def _finish(self, ticket: int, outcome: Outcome) -> None:
        self._host.emit(Finished(ticket, outcome), after=0)

    # -- open --

    def _open(self, begin: Begin, known: Source | None = None) -> None:
        """Open the source of a request. `known` is the source if this client has opened it."""
        self._opening[begin.source] = [begin]
        topic = tag_of(begin.topic) if known is None else known.topic
        expected = 0 if known is None else known.epoch
        name, incarnation = begin.source, self._identity.incarnation
        command = OpenSource(name, incarnation, topic, 0, expected)

        def opened(outcome: Outcome) -> None:
            waiting = self._opening.pop(name)
            if isinstance(outcome, SourceOpened):
                self._opened(command, outcome, known)
            elif isinstance(outcome, Fenced) and known is not None:
                self._fence(known, outcome)
            else:
                for each in waiting:
                    self._finish(each.ticket, outcome)
                return
            for each in waiting:
                self.begin(each)

        if known is None:
            self._calls.replace_epoch(command, opened, begin.timeout)
        else:
            self._calls.do(command, opened, begin.timeout)

    def _opened(self, command: OpenSource, opened: SourceOpened, known: Source | None) -> None:
        now = self._host.now
        if known is None or known.epoch != opened.epoch:
            facts = (command.source, command.topic, opened.epoch)
            made = Source(*facts, ring=opened.ring, now=now)
            made.next = opened.next
            self._sources[made.name, made.tag] = made
        else:
            known.used = now

    def _fence(self, source: Source, fenced: Fenced) -> None:
        """Refuse all later transactions. If the record was deleted, open the source again."""
        source.fenced = fenced
        if not fenced.epoch:
            del self._sources[source.name, source.tag]

    # -- end --

    def end(self, end: End) -> None:
        command = end.command
        source = self._find(command.source, command.topic)
        if source is None or source.epoch != command.epoch:
            self._finish(end.ticket, Fenced(0))
            return
        self._calls.do(
            msgspec.structs.replace(command, finished=source.finished),
            lambda outcome: self._ended(source, end.ticket, command, outcome),
        )

    def _ended(
        self, source: Source, ticket: int, command: EndTransaction, outcome: Outcome
    ) -> None:
        del source.unfinished[command.number]
        self._heard(source, outcome)
        self._finish(ticket, outcome)
        self._go_on(source)

    def _heard(self, source: Source, outcome: Outcome) -> None:
        source.used = self._host.now
        if isinstance(outcome, Fenced) and source.fenced is None:
            self._fence(source, outcome)

    def _go_on(self, source: Source) -> None:
        """Begin the transactions that wait for the result of another one."""
        waiting, source.waiting = source.waiting, deque()
        for begin in waiting:
            self.begin(begin)

    # -- shares of transactions across groups --

    def _source_of(self, share: EndTransaction) -> Source | None:
        source = self._find(share.source, share.topic)
        return source if source is not None and source.epoch == share.epoch else None

    def finished_of(self, share: EndTransaction) -> int:
        """Return the lowest number without a result, in the record of the share's tag."""
        source = self._source_of(share)
        return 0 if source is None else source.finished

    def heard(self, share: EndTransaction, outcome: Outcome) -> None:
        """Note an answer about a share whose number is still in use."""
        source = self._source_of(share)
        if source is not None:
            self._heard(source, outcome)

    def settled(self, share: EndTransaction, outcome: Outcome) -> None:
        """Note that the client needs the number of a share no more."""
        source = self._source_of(share)
        if source is not None:
            source.unfinished.pop(share.number, None)
            self._heard(source, outcome)
            self._go_on(source)

    def closes(self, prefix: str) -> list[CloseSource]:
        """Return commands that close the sources whose names have this prefix."""
        sources = self._sources.values()
        mine = (each for each in sources if each.fenced is None and each.name.startswith(prefix))
        return [CloseSource(each.name, 0, each.topic, renew=True) for each in mine]
