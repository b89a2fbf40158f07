"""Putting to one topic: pipelined, resent from where the node misses something, appended once.

    number      counts the messages that this client has ever put to the topic; stored in the outbox
    sequence    what the node knows: number + shift, for this life of the topic

A batch is written to the outbox, sent, and settled by its own answer. Sequences are contiguous, so
the node can tell a repetition (`Already`) and a hole (`Gap`, a request to resend). After silence or
a lost link only the first batch is sent. Its answer opens the window again; the answer to an
earlier copy widens it by one.

Opening takes the name over from the process that holds it, and only if that is still the one that
we know of: a first open expects none, and is told who holds the name if it is held. So an open that
comes late, when we are gone, changes nothing. A process that has held the name, and is then told of
a newer epoch, was taken over from and stops.

The first open fixes the shift. It is written down before anything is sent under it, so that the
next life of this client can tell what the node has from what it has not. Should the node know less
than it had acknowledged, or somebody with other books have put under our name, what is unsettled is
numbered anew.

A topic that was deleted and created again knows nothing of what was put before. A batch that may
have been sent to the earlier topic may be stored and acknowledged there, and is never put again:
its outcome is reported as unknown. The same holds when the topic has deleted the producer's record.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from oncecast.client.session.local import NotStored, Outcome, Stored
from oncecast.client.session.outbox import Based, Outgoing, Queued, Record, Settled
from oncecast.client.session.patience import Patience
from oncecast.wire.commands import CloseProducer, OpenProducer, Put
from oncecast.wire.errors import (
    AnyRefusal,
    Fenced,
    Forgotten,
    Gap,
    NotHere,
    Overloaded,
    Refusal,
    Unopened,
)
from oncecast.wire.frames import Call
from oncecast.wire.results import Already, Appended, Done, Opened

if TYPE_CHECKING:
    from oncecast.client.session.client import ClientSession
    from oncecast.client.session.whereabouts import Whereabouts

WINDOW_BATCHES, WINDOW_BYTES = 256, 8 * 1024 * 1024  # under way at once


class Flow:
    def __init__(self, session: ClientSession, topic: str) -> None:
        self.topic = topic
        self._session = session
        self._life = session.life
        self._lives = 0
        self.epoch = 0  # 0: not open
        self._held = 0  # the last epoch that this process had; 0: none so far
        self._current = 0  # the epoch that we believe to be current: opening is conditional on it
        self._opening = False
        self.failed: AnyRefusal | None = None  # for ever
        self.busy: Overloaded | None = None  # the last word of a node that takes nothing now
        self.topic_id = 0
        self.shift = 0
        self._record = 0  # by which the topic knows us
        self._base = 0  # the sequence from which on the shift holds
        self._base_record = 0
        self.number = 0  # of the next message
        # By number, in order. A plain dict takes ever longer to find its first when many are gone.
        self.unsettled: OrderedDict[int, Outgoing] = OrderedDict()
        self._next = 0  # number from which on nothing is under way
        self._window = 0  # batches
        self._flying = self._flying_bytes = 0
        self._mark = 0  # calls before this one were sent before the last rewind
        self._patience = Patience(session, topic)

    # -- what is put --

    def produce(self, ticket: int, count: int, batch: bytes) -> None:
        session = self._session
        if self.failed is not None:
            session.emit(NotStored(ticket, self.failed), after=0)
            return
        number, record = self.number, 0
        if session.durable:
            record = session.append(Queued(self.topic, number, count, self.settled, batch))
        self.unsettled[number] = Outgoing(self, ticket, number, count, batch, record)
        self.number += count
        if session.durable:
            session.wrote(len(batch))
        self.go_on()

    @property
    def settled(self) -> int:
        """All before this number needs no care any more."""
        return next(iter(self.unsettled), self.number)

    def go_on(self) -> None:
        """Send what may be sent."""
        if not self.unsettled or self._opening or self.failed is not None:
            return
        if not self.epoch:
            self._open()
            return
        while self._next < self.number and self._flying < self._window:
            if self._flying_bytes >= WINDOW_BYTES:
                return
            outgoing = self.unsettled.get(self._next)
            if outgoing is None:
                self._next = self._after(self._next)
            else:
                self._send(outgoing)

    def _after(self, number: int) -> int:
        """The next unsettled one: those between have been answered since they were rewound."""
        return next((each for each in self.unsettled if each > number), self.number)

    def _send(self, outgoing: Outgoing) -> None:
        session, batch = self._session, outgoing.batch
        id_ = session.calls.new_id()
        outgoing.ids.append(id_)
        outgoing.sent = True
        outgoing.sends += 1
        outgoing.led = id_ if outgoing.number == self.settled else 0
        session.flying[id_] = outgoing
        sequence = outgoing.number + self.shift
        put = Put(
            self.topic, session.producer, self.epoch, sequence, outgoing.count, len(batch), 0, batch
        )
        node = session.ways.of(self.topic).node
        session.send(node, Call(id_, put), after=max(outgoing.record, self._base_record))
        self._next = outgoing.number + outgoing.count
        self._flying_bytes += len(batch)
        self._flying += 1
        if self._flying == 1:
            self._patience.begin(self._flying_bytes)

    # -- opening --

    def _open(self) -> None:
        session = self._session
        self._opening = True
        name, books = session.producer, session.books
        open_ = OpenProducer(self.topic, name, self._life, 0, books=books, expected=self._current)
        session.calls.do(open_, self._opened)

    def _opened(self, outcome: Outcome) -> None:
        self._opening = False
        if isinstance(outcome, Fenced):
            self._held_by_another(outcome)
            return
        if not isinstance(outcome, Opened):
            assert isinstance(outcome, Refusal), f"{outcome} is no answer to an open"
            self._not_opened(outcome)
            return
        self.epoch = self._held = self._current = outcome.epoch
        self._rebase(outcome)
        self._window = WINDOW_BATCHES
        self._rewind(self.settled)

    def _held_by_another(self, fenced: Fenced) -> None:
        """Take over from the process with this epoch, unless it has taken over from us."""
        if 0 < self._held < fenced.epoch:
            self._fail_all(fenced)
        else:
            self._current = fenced.epoch
            self.go_on()

    def _not_opened(self, why: AnyRefusal) -> None:
        """Whoever waits can decide. But of what an earlier life has left nobody else knows: it is
        kept, with all that is behind it, and tried again."""
        first = next(iter(self.unsettled.values()))
        if first.ticket:
            self._forgotten()  # A batch that was sent under an earlier epoch may be stored.
            self._fail_all(why)
        else:
            self._patience.pause()
            self._patience.attempts += 1

    def _rebase(self, opened: Opened) -> None:
        """Find out which sequence our next number has."""
        known, self._record = self._record, opened.record
        if opened.topic_id != self.topic_id:
            if self.topic_id:  # otherwise nothing was sent under these numbers
                self._forgotten()
        elif known and opened.record not in (0, known):
            self._forgotten()
        elif self._agrees(opened):
            if known != opened.record and self._session.durable:
                self._base_record = self._session.append(self._based())
            return
        self.topic_id, self._base = opened.topic_id, opened.next_sequence
        self.shift = self._base - self.settled
        if self._session.durable:
            self._base_record = self._session.append(self._based())

    def _based(self) -> Based:
        return Based(self.topic, self.topic_id, self._base - self.shift, self._base, self._record)

    def _forgotten(self) -> None:
        """Report the outcome of every batch that was sent as unknown.

        The topic has no record of this producer any more, or does not let it in again. A batch that
        is put again could be stored twice.
        """
        why = Forgotten(self.topic, self._session.producer)
        for outgoing in [each for each in self.unsettled.values() if each.sent]:
            self._session.emit(NotStored(outgoing.ticket, why), after=0)
            self._settle(outgoing)

    def _agrees(self, opened: Opened) -> bool:
        """Whether the node knows what our books say, and no more."""
        begin, known = opened.mine
        if not begin <= self._base <= known or known < self.settled + self.shift:
            return False
        for outgoing in list(self.unsettled.values()):
            end = outgoing.number + outgoing.count + self.shift
            if outgoing.ticket == 0 and end <= known:
                # Of an earlier life: what its offset is nobody knows any more.
                self._session.emit(Stored(outgoing.ticket, -1, None), after=0)
                self._settle(outgoing)
        first = next(iter(self.unsettled.values()), None)
        # What was never sent cannot be there: it was put by somebody with a copy of our books.
        ours = first is None or first.sent or known <= first.number + self.shift
        return ours and known == opened.next_sequence

    def _nothing_is_stored(self) -> None:
        """The first was sent once and refused, so none behind it can be in the topic."""
        for outgoing in self.unsettled.values():
            outgoing.sent, outgoing.sends = False, 0

    def _reopen(self) -> None:
        """What is still to come of the old epoch says nothing about the new one."""
        self.epoch = 0
        for outgoing in self.unsettled.values():
            self._unknow(outgoing)
        self.go_on()

    def _unknow(self, outgoing: Outgoing) -> None:
        for id_ in outgoing.ids:
            self._session.flying.pop(id_, None)

    # -- answers --

    def answered(
        self, id_: int, outgoing: Outgoing, result: Done | AnyRefusal, way: Whereabouts
    ) -> None:
        match result:
            case Appended(offset, _, kept):
                self._stored(id_, outgoing, offset, kept)
            case Already(offset):
                self._stored(id_, outgoing, offset, None)
            case Gap() | NotHere() if id_ < self._mark:
                pass  # the batch was sent before the last rewind
            case Gap() if id_ == outgoing.led:
                self._reopen()  # the node misses what it had acknowledged
            case Gap(expected):
                self._resend_from(expected)
            case Unopened():
                self._current = 0
                if outgoing.number == self.settled and outgoing.sends == 1:
                    self._nothing_is_stored()
                self._reopen()
            case Fenced():
                self._fail_all(result)
            case Overloaded():
                self.busy = result
                if id_ >= self._mark:
                    self._hold()
            case NotHere():
                self._session.ways.not_here(self.topic, way)
                self._hold()
            case Refusal():
                outgoing.refused = result
                self._drop_refused()
            case _:
                raise AssertionError(f"{result} is no answer to a put")

    def _stored(self, id_: int, outgoing: Outgoing, offset: int, kept: bool | None) -> None:
        self._session.emit(Stored(outgoing.ticket, offset, kept), after=0)
        self._settle(outgoing)
        self.busy = None
        self._patience.attempts = 0
        # If the batch was sent before the last rewind, those behind it may still be in flight. To
        # send them all again with every such answer would keep a slow node busy with copies.
        wider = self._window + 1 if id_ < self._mark else WINDOW_BATCHES
        self._window = min(WINDOW_BATCHES, wider)
        if self._flying:
            self._patience.begin(self._flying_bytes)
        self._drop_refused()
        self.go_on()

    def _settle(self, outgoing: Outgoing) -> None:
        del self.unsettled[outgoing.number]
        self._unknow(outgoing)
        if outgoing.number < self._next:
            self._flying -= 1
            self._flying_bytes -= len(outgoing.batch)
        self._session.settled(len(outgoing.batch))

    def _resend_from(self, expected: int) -> None:
        for each in self.unsettled.values():
            if each.number + self.shift + each.count > expected:
                self._rewind(each.number)
                return

    def _rewind(self, number: int) -> None:
        """All from `number` on counts as not sent."""
        self._next = number
        before = [each for each in self.unsettled.values() if each.number < number]
        self._flying = len(before)
        self._flying_bytes = sum(len(each.batch) for each in before)
        self._mark = self._session.calls.new_id()
        self.go_on()

    def _hold(self) -> None:
        """The node is busy: nothing more for a while."""
        self._window = 0
        self._rewind(self.settled)
        self._patience.pause()
        self._patience.attempts += 1

    # -- refusals --

    def _drop_refused(self) -> None:
        """A batch that the node does not want leaves a hole in the sequence. When all before it is
        settled, the rest is numbered anew under a new epoch: what is under way with the old numbers
        can then do no harm."""
        first = next(iter(self.unsettled.values()), None)
        if first is None or first.refused is None:
            return
        self._session.emit(NotStored(first.ticket, first.refused), after=0)
        self._settle(first)
        self._lives += 1
        self._life = f"{self._session.life}.{self._lives}"
        self.topic_id = 0
        self._reopen()

    def _fail_all(self, why: AnyRefusal) -> None:
        """A newer life goes by our name, or the node will not have us: all who wait are told. But
        what a fenced client has on disk stays there for the next life with these books."""
        kept = self._session.durable and isinstance(why, Fenced)
        if isinstance(why, Fenced):
            self.failed = why
        for outgoing in list(self.unsettled.values()):
            self._session.emit(NotStored(outgoing.ticket, why), after=0)
            if kept:
                self._unknow(outgoing)
            else:
                self._settle(outgoing)
        self.epoch = 0

    # -- time --

    def link_lost(self) -> None:
        self._probe()

    def tick(self, now: float) -> None:
        if self.unsettled and self._patience.over(now):
            if self.epoch:
                self._probe()
            else:
                self.go_on()

    def _probe(self) -> None:
        """Nothing is heard: send the first again, and the rest once that is answered."""
        if self.epoch and self.unsettled:
            self._window = 1
            self._patience.attempts += 1
            self._rewind(self.settled)

    # -- the end, and what a snapshot holds --

    def farewell(self) -> CloseProducer | None:
        if not self.epoch:
            return None
        return CloseProducer(self.topic, self._session.producer, self.epoch)

    def restore(self, record: Record) -> None:
        match record:
            case Queued(_, number, count, settled, batch):
                self.number = number + count
                self._forget(settled)
                self.unsettled[number] = Outgoing(self, 0, number, count, batch)
            case Based(_, topic_id, number, sequence, known_by):
                self.topic_id, self._base, self.shift = topic_id, sequence, sequence - number
                self._record = known_by
                self._forget(number)  # what was unsettled then has numbers from here on
            case Settled(_, number):
                self.number = max(self.number, number)
                self._forget(number)

    def _forget(self, settled: int) -> None:
        while self.unsettled and self.settled < settled:
            self.unsettled.popitem(last=False)

    def records(self) -> list[Record]:
        """What restores this flow: the same that it once appended, without what is settled."""
        queued = [
            Queued(self.topic, each.number, each.count, self.settled, each.batch)
            for each in self.unsettled.values()
        ]
        return [self._based(), Settled(self.topic, self.settled), *queued]
