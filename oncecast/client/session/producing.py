"""Put batches to one topic: pipelined, resent after a loss, and stored exactly once.

    number      the client's count of messages put to the topic; stored in the outbox
    sequence    the node's count of messages: number + shift, for one topic id

The client writes a batch to the outbox and sends it. The answer settles it. Sequences are
contiguous, so the node detects duplicates (`Already`) and holes (`Gap`, which asks the client to
resend). After silence or a lost link, the client sends only the first batch. Its answer reopens the
window. The answer to an earlier copy widens the window by one batch.

An open takes over the producer name from the process that holds it, but only if the client knows
that process's epoch. The first open expects that no process holds the name. If one does, the node
answers with its epoch. A late copy of an open therefore has no effect. If a process that held the
name finds a newer epoch, another process has taken over, and the older process stops.

The first open fixes the shift. The shift is logged before anything is sent, so this client's next
process can find out which batches the node has. All unsettled messages get new sequences if the
node has fewer messages than it acknowledged, or if a process with another outbox used the name.

A topic that was deleted and recreated does not know about earlier puts. A batch sent before that
may be stored in the old topic, so the client does not put it again. It reports the outcome as
unknown. It does the same if the topic has deleted its record of the producer.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from oncecast.client.session.calls import Calls
from oncecast.client.session.identity import Identity
from oncecast.client.session.local import NotStored, Outcome, Stored
from oncecast.client.session.outbox import Outbox, Outgoing
from oncecast.client.session.patience import Patience
from oncecast.client.session.records import Based, OutboxRecord, Queued, Settled, Withdrawn
from oncecast.client.session.routes import Routes
from oncecast.kernel.protocol import Protocol
from oncecast.wire.commands import CloseProducer, OpenProducer, Put, TimedPut
from oncecast.wire.errors import (
    AnyRefusal,
    Fenced,
    Forgotten,
    Gap,
    NotHere,
    Overloaded,
    Partitioned,
    Refusal,
    Unopened,
)
from oncecast.wire.frames import Call
from oncecast.wire.results import Already, Appended, Done, Opened
from oncecast.wire.timing import Timing

if TYPE_CHECKING:
    from oncecast.client.session.route import Route

WINDOW_BATCHES, WINDOW_BYTES = 256, 8 * 1024 * 1024  # maximum batches, and maximum bytes, in flight


class Numbers:
    """Maps the client's message numbers to the topic's sequences."""

    __slots__ = ("base", "logged", "record", "shift", "topic_id")

    def __init__(self) -> None:
        self.topic_id = 0  # id of the topic, or 0 if nothing was sent yet
        self.shift = 0
        self.base = 0  # the first sequence that the shift applies to
        self.record = 0  # id of the topic's record of this producer
        self.logged = 0  # log position of the last Based record


class Flow:
    """A client's puts to one topic.

    `calls_in_flight` maps the id of each call that carries a batch to the batch.
    """

    def __init__(
        self,
        host: Protocol,
        identity: Identity,
        calls: Calls,
        routes: Routes,
        outbox: Outbox,
        calls_in_flight: dict[int, Outgoing],
        patience: Patience,
        topic: str,
    ) -> None:
        self._host, self._identity, self._outbox = host, identity, outbox
        self._calls, self._routes, self._calls_in_flight = calls, routes, calls_in_flight
        self._patience = patience
        self.topic = topic
        self._incarnation, self._incarnations = identity.incarnation, 0
        self.epoch = 0  # the epoch of this process, or 0 if the producer is not open
        self._held = 0  # the last epoch that this process held, or 0
        self._current = 0  # the epoch that the next open takes over from
        # Whether this is the only state directory that has put messages with this record.
        self._alone = False
        self._opening = False
        self.failed: AnyRefusal | None = None  # the refusal for all later batches
        self.busy: Overloaded | None = None  # the last refusal from a busy node
        self._numbers = Numbers()
        self.number = 0  # number of the next message
        # By number, in order. A plain dict finds its first key slowly after many deletions.
        self.unsettled: OrderedDict[int, Outgoing] = OrderedDict()
        self._next = 0  # batches from this number on have not been sent
        self._window = 0  # maximum number of batches in flight
        self._in_flight = self._in_flight_bytes = 0
        self._mark = 0  # calls with lower ids were sent before the last rewind

    # -- put and send --

    @property
    def topic_id(self) -> int:
        return self._numbers.topic_id

    def produce(
        self,
        ticket: int,
        count: int,
        batch: bytes,
        timing: Timing | None = None,
        create: bool = True,  # as in `Produce`
    ) -> None:
        if self.failed is not None:
            self._host.emit(NotStored(ticket, self.failed), after=0)
            return
        number, record = self.number, 0
        if self._identity.durable:
            queued = Queued(self.topic, number, count, self.settled, batch, timing)
            record = self._host.append(queued)
        made = Outgoing(self, ticket, number, count, batch, record, timing)
        made.create = create
        self.unsettled[number] = made
        self.number += count
        if self._identity.durable:
            self._outbox.wrote(len(batch))
        self.go_on()

    @property
    def settled(self) -> int:
        """Return the number of the first unsettled message."""
        return next(iter(self.unsettled), self.number)

    def go_on(self) -> None:
        """Send as many batches as the window allows. Open the producer first if necessary."""
        if not self.unsettled or self._opening or self.failed is not None:
            return
        if not self.epoch:
            self._open()
            return
        while self._next < self.number and self._in_flight < self._window:
            if self._in_flight_bytes >= WINDOW_BYTES:
                return
            outgoing = self.unsettled.get(self._next)
            if outgoing is None:
                self._next = self._after(self._next)
            else:
                self._send(outgoing)

    def _after(self, number: int) -> int:
        """Return the next unsettled number. Those in between were answered after a rewind."""
        return next((each for each in self.unsettled if each > number), self.number)

    def _send(self, outgoing: Outgoing) -> None:
        batch, id_ = outgoing.batch, self._calls.new_id()
        outgoing.ids.append(id_)
        outgoing.sent = True
        outgoing.sends += 1
        # This copy may be stored, whatever the answer to an earlier copy was.
        outgoing.refused = None
        outgoing.led = id_ if outgoing.number == self.settled else 0
        self._calls_in_flight[id_] = outgoing
        sequence = outgoing.number + self._numbers.shift
        name, count = self._identity.producer, outgoing.count
        put = Put(self.topic, name, self.epoch, sequence, count, len(batch), 0, batch)
        if outgoing.timing is not None:
            put = timed(put, outgoing.timing)
        node = self._routes.of(self.topic).node
        self._host.send(node, Call(id_, put), after=max(outgoing.record, self._numbers.logged))
        self._next = outgoing.number + outgoing.count
        self._in_flight_bytes += len(batch)
        self._in_flight += 1
        if self._in_flight == 1:
            self._patience.begin(self._in_flight_bytes)

    # -- opening --

    def _open(self) -> None:
        self._opening = True
        open_ = OpenProducer(
            self.topic,
            self._identity.producer,
            self._incarnation,
            0,
            create=next(iter(self.unsettled.values())).create,
            directory_id=self._identity.directory_id,
            expected=self._current,
        )
        self._calls.do(open_, self._opened)

    def _opened(self, outcome: Outcome) -> None:
        self._opening = False
        if isinstance(outcome, Fenced):
            self._held_by_another(outcome)
            return
        if not isinstance(outcome, Opened):
            assert isinstance(outcome, Refusal), f"{outcome} does not answer an open"
            self._not_opened(outcome)
            return
        # An open that expects no process succeeds only if it creates the record, which is empty.
        created = not self._current and not outcome.next_sequence
        self.epoch = self._held = self._current = outcome.epoch
        self._alone = outcome.mine == (0, outcome.next_sequence)
        self._rebase(outcome, created=created)
        self._window = WINDOW_BATCHES
        self._judge_refused(outcome.next_sequence)
        self._rewind(self.settled)

    def _held_by_another(self, fenced: Fenced) -> None:
        """Take over the name, unless its holder took the name over from this process."""
        if 0 < self._held < fenced.epoch:
            self._fail_all(fenced)
        else:
            self._current = fenced.epoch
            self.go_on()

    def _not_opened(self, why: AnyRefusal) -> None:
        """Fail all batches so that the application can decide what to do.

        Batches from an earlier process have no caller to notify, so they are kept and retried,
        unless the topic has partitions now. Later batches must not wait for them.
        """
        first = next(iter(self.unsettled.values()))
        if first.ticket or isinstance(why, Partitioned):
            if self._numbers.topic_id:  # 0 if no batch was ever sent
                self._forgotten()  # A batch that was sent in an earlier epoch may be stored.
            self._fail_all(why)
        else:
            self._withdraw(why)
            self._patience.pause()
            self._patience.attempts += 1

    def _withdraw(self, why: AnyRefusal) -> None:
        """Report this process's unsent batches as not stored. Later batches reuse their numbers."""
        unsent = [each for each in self.unsettled.values() if each.ticket and not each.sent]
        if unsent:
            for outgoing in unsent:
                self._settle(outgoing)
            self.number = unsent[0].number
            record = self._host.append(Withdrawn(self.topic, self.number))
            for outgoing in unsent:
                self._host.emit(NotStored(outgoing.ticket, why), after=record)

    def _rebase(self, opened: Opened, *, created: bool) -> None:
        """Find the sequence of the next number. Log the mapping if it changed.

        `created` says that the open created the record, so an earlier record was deleted.
        """
        known, self._numbers.record = self._numbers.record, opened.record
        if opened.topic_id != self._numbers.topic_id:
            if self._numbers.topic_id:  # 0 if nothing was sent with these numbers
                self._forgotten()
        elif created or (known and opened.record not in (0, known)):
            self._forgotten()
        elif self._agrees(opened):
            if known != opened.record and self._identity.durable:
                self._numbers.logged = self._host.append(self._based())
            return
        self._numbers.topic_id, self._numbers.base = opened.topic_id, opened.next_sequence
        self._numbers.shift = self._numbers.base - self.settled
        if self._identity.durable:
            self._numbers.logged = self._host.append(self._based())

    def _based(self) -> Based:
        numbers = self._numbers
        first = numbers.base - numbers.shift
        return Based(self.topic, numbers.topic_id, first, numbers.base, numbers.record)

    def _forgotten(self) -> None:
        """Report the outcome of every batch that was sent as unknown.

        The topic has lost its record of this producer, or refuses to open it. Putting the batches
        again could store them twice.
        """
        sent = [each for each in self.unsettled.values() if each.sent]
        self._give_up(sent, Forgotten(self.topic, self._identity.producer))

    def _agrees(self, opened: Opened) -> bool:
        """Return whether the node's state fits this outbox, so that the mapping stays valid.

        Settle batches from an earlier process that the node has stored.
        """
        begin, known = opened.mine
        if not begin <= self._numbers.base <= known or known < self.settled + self._numbers.shift:
            return False
        for outgoing in list(self.unsettled.values()):
            end = outgoing.number + outgoing.count + self._numbers.shift
            if outgoing.ticket == 0 and end <= known:
                # From an earlier process: the offset is no longer known.
                self._host.emit(Stored(outgoing.ticket, -1, None), after=0)
                self._settle(outgoing)
        first = next(iter(self.unsettled.values()), None)
        # The node cannot have a batch that was never sent, unless the outbox was copied.
        ours = first is None or first.sent or known <= first.number + self._numbers.shift
        return ours and known == opened.next_sequence

    def _nothing_is_stored(self) -> None:
        """Mark all batches as not sent. The first was refused, so no later one is stored."""
        for outgoing in self.unsettled.values():
            outgoing.sent, outgoing.sends = False, 0

    def _reopen(self) -> None:
        """Open again, and ignore answers to batches from the old epoch."""
        self.epoch = 0
        for outgoing in self.unsettled.values():
            self._drop_calls(outgoing)
        self.go_on()

    def _drop_calls(self, outgoing: Outgoing) -> None:
        for id_ in outgoing.ids:
            self._calls_in_flight.pop(id_, None)

    # -- answers --

    def answered(
        self, id_: int, outgoing: Outgoing, result: Done | AnyRefusal, route: Route
    ) -> None:
        match result:
            case Appended(offset, _, kept):
                self._stored(id_, outgoing, offset, kept)
            case Already(offset):
                self._stored(id_, outgoing, offset, None)
            case Gap() | NotHere() if id_ < self._mark:
                pass  # sent before the last rewind
            case Gap() if id_ == outgoing.led:
                self._reopen()  # The node has lost batches that it acknowledged.
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
                self._routes.not_here(self.topic, route)
                self._hold()
            case Refusal():
                outgoing.refused = result
                self._drop_refused()
            case _:
                raise AssertionError(f"{result} does not answer a put")

    def _stored(self, id_: int, outgoing: Outgoing, offset: int, kept: bool | None) -> None:
        self._host.emit(Stored(outgoing.ticket, offset, kept), after=0)
        self._settle(outgoing)
        self.busy = None
        self._patience.attempts = 0
        # If the batch was sent before the last rewind, later batches may still be in flight.
        # Resending all of them after every such answer would flood a slow node with duplicates.
        wider = self._window + 1 if id_ < self._mark else WINDOW_BATCHES
        self._window = min(WINDOW_BATCHES, wider)
        if self._in_flight:
            self._patience.begin(self._in_flight_bytes)
        self._drop_refused()
        self.go_on()

    def _settle(self, outgoing: Outgoing) -> None:
        del self.unsettled[outgoing.number]
        self._drop_calls(outgoing)
        if outgoing.number < self._next:
            self._in_flight -= 1
            self._in_flight_bytes -= len(outgoing.batch)
        self._outbox.settled(len(outgoing.batch))

    def _resend_from(self, expected: int) -> None:
        for each in self.unsettled.values():
            if each.number + self._numbers.shift + each.count > expected:
                self._rewind(each.number)
                return

    def _rewind(self, number: int) -> None:
        """Resend the batches from `number` on."""
        self._next = number
        before = [each for each in self.unsettled.values() if each.number < number]
        self._in_flight = len(before)
        self._in_flight_bytes = sum(len(each.batch) for each in before)
        self._mark = self._calls.new_id()
        self.go_on()

    def _hold(self) -> None:
        """Stop sending for a while, because the node is busy."""
        self._window = 0
        self._rewind(self.settled)
        self._patience.pause()
        self._patience.attempts += 1

    # -- refusals --

    def _drop_refused(self) -> None:
        """Report a refused batch once all earlier batches are settled, then open again.

        The batch leaves a hole in the sequence, so the remaining batches get new sequences in a new
        epoch. Copies with the old sequences then have no effect. If the batch was sent before, that
        copy may be stored. Only the answer to the open shows whether it is.
        """
        first = next(iter(self.unsettled.values()), None)
        if first is None or first.refused is None:
            return
        self._incarnations += 1
        self._incarnation = f"{self._identity.incarnation}.{self._incarnations}"
        if first.sends <= 1:
            self._give_up([first], first.refused)
            self._numbers.topic_id = 0
        self._reopen()  # The answer shows whether an earlier copy is stored.

    def _judge_refused(self, next_sequence: int) -> None:
        """Settle refused batches that have an earlier copy in the topic. Drop the remaining ones.

        Copies from an earlier epoch no longer take effect.
        """
        for outgoing in list(self.unsettled.values()):
            if outgoing.refused is None:
                return
            if outgoing.number + outgoing.count + self._numbers.shift > next_sequence:
                self._nothing_is_stored()
                self._drop_refused()
                return
            self._host.emit(Stored(outgoing.ticket, -1, None), after=0)
            self._settle(outgoing)

    def _fail_all(self, why: AnyRefusal) -> None:
        """Report all batches as not stored.

        A fenced durable client keeps them on disk for the next process with this outbox.
        """
        batches = list(self.unsettled.values())
        if isinstance(why, Fenced):
            self.failed = why
        if isinstance(why, Fenced) and self._identity.durable:
            for outgoing in batches:
                self._host.emit(NotStored(outgoing.ticket, why), after=0)
                self._drop_calls(outgoing)
        else:
            self._give_up(batches, why)
        self.epoch = 0

    def _give_up(self, batches: list[Outgoing], why: AnyRefusal) -> None:
        """Report batches as not stored, but only after the outbox on disk has dropped them.

        Otherwise the next process could put a batch that was reported as not stored.
        """
        for outgoing in batches:
            self._settle(outgoing)
        durable = self._identity.durable and batches
        record = self._host.append(Settled(self.topic, self.settled)) if durable else 0
        for outgoing in batches:
            if isinstance(why, Partitioned):  # the client puts the messages to the partitions
                again = NotStored(outgoing.ticket, why, outgoing.batch, outgoing.timing)
                self._host.emit(again, after=record)
            else:
                self._host.emit(NotStored(outgoing.ticket, why), after=record)

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
        """Resend the first batch after silence. Its answer reopens the window for the rest."""
        if self.epoch and self.unsettled:
            self._window = 1
            self._patience.attempts += 1
            self._rewind(self.settled)

    # -- close, restore and snapshot --

    def close_command(self) -> CloseProducer | None:
        """Return the command that deletes the record, or None if it is unknown or still needed.

        Another state directory needs the record to find out which of its messages are stored.
        """
        if not self.epoch or not self._alone:
            return None
        return CloseProducer(self.topic, self._identity.producer, self.epoch)

    def restore(self, record: OutboxRecord) -> None:
        match record:
            case Queued(_, number, count, settled, batch, timing):
                self.number = number + count
                self._forget(settled)
                outgoing = Outgoing(self, 0, number, count, batch, timing=timing)
                self.unsettled[number] = outgoing
            case Based(_, topic_id, number, sequence, known_by):
                numbers = self._numbers
                numbers.topic_id, numbers.record = topic_id, known_by
                numbers.base, numbers.shift = sequence, sequence - number
                self._forget(number)  # All messages before this number were settled.
            case Settled(_, number):
                self.number = max(self.number, number)
                self._forget(number)
            case Withdrawn(_, number):
                self.number = number
                for each in [each for each in self.unsettled if each >= number]:
                    del self.unsettled[each]

    def _forget(self, settled: int) -> None:
        while self.unsettled and self.settled < settled:
            self.unsettled.popitem(last=False)

    def records(self) -> list[OutboxRecord]:
        """Return the records that restore this flow, without settled batches."""
        queued = [
            Queued(self.topic, each.number, each.count, self.settled, each.batch, each.timing)
            for each in self.unsettled.values()
        ]
        return [self._based(), Settled(self.topic, self.settled), *queued]


def timed(put: Put, timing: Timing) -> TimedPut:
    names = (put.topic, put.producer, put.epoch, put.sequence)
    return TimedPut(*names, put.count, put.size, put.at, put.batch, timing)
