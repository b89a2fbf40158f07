"""Read one subscription: each offset once and in order, even if the network repeats messages.

The reader attaches once, then fetches. It compares each delivery with its epoch and next offset,
drops stale and repeated messages, and fetches missing ones again. After a lost link, it fetches in
the same epoch without attaching again. If another process has taken over the subscription, the node
refuses the fetch and the reader ends. The reader renews its credit when the application has taken
half of the window.

An Attach takes over from the reader with a given epoch. The first Attach expects no reader. If
there is one, the node answers with its epoch. A late copy of an Attach therefore has no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncecast.client.session.acks import Acks
from oncecast.client.session.alarm import Alarm
from oncecast.client.session.calls import Calls, Then
from oncecast.client.session.credit import UNREPORTED_BYTES_MAX, Credit
from oncecast.client.session.local import (
    NEVER,
    Again,
    Arrived,
    Drop,
    Ended,
    Finished,
    Leave,
    Move,
    NoAnswer,
    Outcome,
    Positioned,
    Read,
    Settle,
    Skipped,
    Want,
)
from oncecast.client.session.patience import RETRY_MAX, Patience
from oncecast.client.session.routes import Routes
from oncecast.kernel.protocol import Protocol
from oncecast.wire import batch, errors
from oncecast.wire.batch import BadBatch
from oncecast.wire.commands import Attach, Detach, FromOffset, Seek, Start
from oncecast.wire.frames import Chunk, Delivery, Fetch, FlowEnded, Look, Tune, View
from oncecast.wire.message import Message
from oncecast.wire.results import Acked, Attached, Detached, Sought

if TYPE_CHECKING:
    from oncecast.client.session.route import Route

EXCESSES_MAX = 100  # number of deliveries beyond the credit at which the reader gives up
DAMAGED_MAX = 3  # number of unreadable deliveries at one offset at which the reader gives up


class Position:
    """A reader's position in its topic."""

    __slots__ = ("bad", "delivered", "expected", "gap", "skip")

    def __init__(self, offset: int) -> None:
        self.expected = offset  # the next expected offset
        self.delivered = offset  # the application has taken all earlier messages
        self.gap = -1  # the last offset found missing
        self.skip = 0  # the first offset in the topic if it is after `expected`, otherwise 0
        self.bad: errors.BadBatch | None = None  # why the message at `expected` is unreadable


class Leaving(NamedTuple):
    request: Leave
    deadline: float


class Reader:
    """The reader of one subscription.

    `incarnation` is unique to this reader. `readers` contains all readers of the client.
    """

    def __init__(
        self,
        host: Protocol,
        alarm: Alarm,
        calls: Calls,
        routes: Routes,
        readers: dict[tuple[str, str], Reader],
        patience: Patience,
        read: Read,
        incarnation: str,
        window: int,
    ) -> None:
        self._host, self._alarm, self._calls, self._routes = host, alarm, calls, routes
        self._readers, self._patience = readers, patience
        self.topic, self.subscription, self.push = read.topic, read.subscription, read.push
        self._read = read
        self._incarnation = incarnation
        self.epoch = 0  # the epoch of the attachment, or 0 if the reader is not attached
        self.topic_id = 0
        self.ended = False
        self._leaving: Leaving | None = None
        self._seeks = 0  # number of seeks that this reader has started
        self._moving = 0  # number of seeks in flight
        self._end_of_topic = 0
        self._suspect_below = 0  # messages before this offset may have been delivered before
        self._fetched = -1  # the offset of the last Fetch
        self._credit = Credit(window)
        self._damaged = 0
        self._go_to(0)
        self._attach(0)

    @property
    def confirmed(self) -> int:
        """Return the offset up to which the node has confirmed acknowledgements."""
        return self._acks.confirmed

    # -- attach --

    def _attach(self, expected: int) -> None:
        """Attach and take over from the reader with this epoch. With 0, expect no reader."""
        term = self._read.term
        attach = Attach(self.topic, self.subscription, self._incarnation, expected, term)
        self._attaching = self._calls.do(attach, self._attached)

    def _attached(self, outcome: Outcome) -> None:
        if isinstance(outcome, errors.Fenced):
            self._held_by_another(outcome)
            return
        if not isinstance(outcome, Attached):
            assert isinstance(outcome, errors.Refusal), f"{outcome} does not answer an attach"
            self._end(outcome)
            return
        self.epoch, self._end_of_topic = outcome.epoch, outcome.next
        self.topic_id = outcome.topic_id
        start = self._read.start_at
        if self._leaving is not None:
            self._depart()
        elif start > outcome.next:
            self._end(errors.OutOfRange(outcome.next))
        elif 0 <= start < outcome.cursor:
            # The application wants messages that it has acknowledged, so move the cursor back.
            self._at.expected = outcome.cursor
            self._seek(FromOffset(start), self._went_back)
        else:
            self._position(max(outcome.cursor, start))
            self._skip_to(outcome.first)
            self._fetch()

    def _held_by_another(self, fenced: errors.Fenced) -> None:
        leaving = self._leaving
        if leaving is None:
            self._attach(fenced.epoch)
        else:  # Another reader is attached, so there is nothing to detach.
            self._over()
            self._host.emit(Finished(leaving.request.ticket, Detached(0)), after=0)

    def _went_back(self, outcome: Outcome) -> None:
        if self.ended:
            return
        if isinstance(outcome, Sought):
            landed, start = self._at.expected, self._read.start_at
            self._at.expected = self._at.delivered = start
            self._skip_to(landed)
        elif isinstance(outcome, errors.Refusal):
            self._end(outcome)
        else:
            self._end(errors.Denied())

    def _position(self, offset: int) -> None:
        self._acks.void(Acked(offset))
        self._go_to(offset)
        self._credit.forget()
        end = self._end_of_topic = max(self._end_of_topic, offset)
        where = (self.topic, self.subscription)
        self._host.emit(Positioned(*where, offset, end, self.epoch), after=0)

    def _go_to(self, offset: int) -> None:
        self._at = Position(offset)
        where = (self.topic, self.subscription, self.epoch, offset)
        self._acks = Acks(self._host, self._alarm, self._calls, *where, self._ack_refused)

    # -- fetch --

    def _fetch(self) -> None:
        offset = self._fetched = self._at.expected
        where = (self.topic, self.subscription, self.epoch, offset)
        fetch = Fetch(*where, self._acks.upto, *self._credit.grant(offset, self._at.delivered))
        route, entry = self._routes.of(self.topic), self._routes.entry
        if self.push and route is not entry:
            self._host.send(entry.node, Tune(fetch), after=0)
        else:
            self._host.send(route.node, fetch, after=0)
        self._acks.carried()
        self._patience.begin()

    def _refetch(self) -> None:
        """Fetch missing messages.

        The node treats the first Fetch at a later offset as a renewal of credit, so send a second
        one.
        """
        if self._fetched < self._at.expected:
            self._fetch()
        self._fetch()

    def delivered(self, delivery: Delivery) -> None:
        if delivery.epoch != self.epoch:
            return
        self._suspect_below = max(self._suspect_below, delivery.suspect_below)
        self._end_of_topic = delivery.next
        if not delivery.chunks:
            self._skip_to(delivery.next)
        messages: list[Message] = []
        for chunk in delivery.chunks:
            if chunk.offset > self._at.expected:
                self._missing()
                break
            end = chunk.offset + chunk.count
            if end <= self._at.expected:
                continue  # a duplicate
            if not self._credit.allows(end):
                self._excess()
                break
            if not self._open(chunk, messages):
                break
        if messages:
            self._patience.attempts = self._damaged = 0
            self._at.bad = None
            self._patience.begin()
            where = (self.topic, self.subscription)
            low = self._credit.low(self._at.expected)
            self._host.emit(Arrived(*where, messages, delivery.next, low), after=0)
            self._report_arrival()

    def _report_arrival(self) -> None:
        """Report arrived bytes to the node, because all of a client's readers share its window."""
        if self._credit.unreported_bytes * len(self._readers) >= UNREPORTED_BYTES_MAX:
            self._fetch()

    def _excess(self) -> None:
        """Count and drop a delivery beyond the credit. End the reader after too many.

        This keeps a faulty node from filling the memory. Copies from before a seek may also exceed
        the credit.
        """
        self._credit.excesses += 1
        if self._credit.excesses >= EXCESSES_MAX:
            fact = "the node sent more than the credit allows"
            where = f"offset {self._at.expected} of topic {self.topic!r}"
            self._end_in_order(errors.BadBatch(f"{where} cannot be read: {fact}"))

    def _missing(self) -> None:
        if self._at.gap != self._at.expected:
            self._at.gap = self._at.expected
            self._refetch()

    def _open(self, chunk: Chunk, messages: list[Message]) -> bool:
        """Add the new messages of `chunk` to `messages`. Return False if it is damaged."""
        end = chunk.offset + chunk.count
        suspect_end = min(max(self._suspect_below, self._at.expected), end)
        try:
            new = self._decoded(chunk, self._at.expected, suspect_end, redelivered=True)
            new += self._decoded(chunk, suspect_end, end, redelivered=False)
        except BadBatch as error:
            self._unreadable(end, error)
            return False
        messages += new
        self._at.expected = end
        self._credit.arrived(end, batch.opened_bytes(chunk.batch))
        return True

    def _decoded(self, chunk: Chunk, begin: int, end: int, *, redelivered: bool) -> list[Message]:
        if begin == end:
            return []
        skipped = begin - chunk.offset
        found = batch.messages(
            chunk.batch,
            topic=self._read.partition_of or self.topic,
            offset=begin,
            producer=chunk.producer,
            sequence=chunk.sequence + skipped,
            skip=chunk.skip + skipped,
            count=end - begin,
            redelivered=redelivered,
            partition=self._read.partition,
        )
        if len(found) != end - begin:
            raise BadBatch(f"the batch has {len(found)} messages, not {end - begin}")
        return found

    def _unreadable(self, end: int, error: BadBatch) -> None:
        self._damaged += 1
        if self._damaged < DAMAGED_MAX:
            self._refetch()
        else:
            offsets = f"offsets {self._at.expected} to {end - 1} of topic {self.topic!r}"
            self._end_in_order(errors.BadBatch(f"{offsets} cannot be read: {error}"))

    def _end_in_order(self, why: errors.BadBatch) -> None:
        """End the reader once the application has taken all messages before the bad batch."""
        self._at.bad = why
        if self._at.delivered == self._at.expected and self._leaving is None:
            self._end(why)
            self._detach(lambda _: None, RETRY_MAX)

    # -- requests from the application --

    def want(self, want: Want | Settle | Leave) -> None:
        self._at.delivered = max(self._at.delivered, min(want.delivered, self._at.expected))
        self._acks.advance(min(want.ack, self._at.delivered))
        self._credit.taken(self._at.delivered)
        if not self.epoch:
            return
        self._pass_skipped()
        if self._at.bad is not None:
            self._end_in_order(self._at.bad)
        if self.ended:
            return
        if self._credit.renewable(self._at.delivered):
            self._fetch()
        else:
            self._acks.soon()

    def settle(self, settle: Settle) -> None:
        self.want(settle)
        if self.ended:
            assert self._at.bad is not None
            self._host.emit(Finished(settle.ticket, self._at.bad), after=0)
        else:
            self._acks.settle(settle.ticket, settle.ack)

    def _ack_refused(self, acks: Acks, outcome: Outcome) -> None:
        if isinstance(outcome, NoAnswer):  # a repeated copy was denied
            outcome = errors.Denied()
        # The acks were requested before a seek, or before the reader ended.
        if acks is not self._acks or self.ended:
            if isinstance(outcome, errors.Refusal):
                acks.void(outcome)
            return
        match outcome:
            case errors.Repositioned(epoch, cursor):
                acks.void(Acked(cursor))  # the epoch has ended, even if a seek is pending
                self._repositioned(epoch, cursor)
            case errors.Refusal():
                self._end(outcome)
            case _:
                raise AssertionError(f"{outcome} does not answer an ack")

    def again(self, again: Again) -> None:
        if self._acks.upto <= again.offset < self._at.expected:
            self._suspect_below = max(self._suspect_below, again.delivered)
            self._at.expected = self._at.delivered = again.offset
            self._credit.forget()
            self._at.gap = again.offset  # Messages in flight must not count as a new gap.
            self._refetch()

    # -- seeks --

    def move(self, move: Move) -> None:
        self._seek(move.start, self._finishing(move.ticket), move.timeout)

    def _finishing(self, ticket: int) -> Then:
        return lambda outcome: self._host.emit(Finished(ticket, outcome), after=0)

    def _seek(self, start: Start, then: Then, timeout: float = NEVER) -> None:
        self._seeks += 1
        self._moving += 1
        token = f"{self._incarnation}.{self._seeks}"

        def attempt(epoch: int) -> None:
            seek = Seek(self.topic, self.subscription, start, 0, token, epoch)
            self._calls.do(seek, sought, timeout)

        def sought(outcome: Outcome) -> None:
            if isinstance(outcome, errors.Repositioned):  # another seek came first
                attempt(outcome.epoch)
                return
            self._moving -= 1
            if self.ended:
                pass  # Do not move the next reader.
            elif isinstance(outcome, Sought):
                self._repositioned(outcome.epoch, outcome.cursor)
            elif isinstance(outcome, NoAnswer):
                self._refetch()  # The answer shows whether the seek took effect.
            then(outcome)

        attempt(self.epoch)

    def _repositioned(self, epoch: int, cursor: int) -> None:
        if self._moving or epoch <= self.epoch:
            return  # The answer to a pending seek has the position, or the position is known.
        self.epoch = epoch
        self._position(cursor)
        self._fetch()

    def flow_ended(self, ended: FlowEnded, route: Route) -> None:
        if ended.epoch != self.epoch:
            return
        match ended.why:
            case errors.Repositioned(epoch, cursor):
                self._repositioned(epoch, cursor)
            case errors.Overloaded():
                pass  # `tick` fetches again.
            case errors.NotHere():
                self._routes.not_here(self.topic, route)
            case errors.BadBatch() as why:
                self._end_in_order(why)
            case why:
                self._end(why)

    # -- deleted messages --

    def _skip_to(self, first: int) -> None:
        """Skip deleted messages once the application has taken all messages before them."""
        self._at.skip = first if first > self._at.expected else 0
        self._pass_skipped()

    def _pass_skipped(self) -> None:
        if self._at.skip and self._at.delivered == self._at.expected:
            skipped = Skipped(self.topic, self.subscription, self._at.expected, self._at.skip)
            self._host.emit(skipped, after=0)
            self._at.expected = self._at.delivered = self._at.skip
            self._at.skip = 0
            self._fetch()

    def _ask_first(self) -> None:
        calls = self._calls
        look = Look(calls.new_id(), self.topic, subscriptions=False)
        calls.look(look, self._looked, timeout=RETRY_MAX)

    def _looked(self, view: View | NoAnswer) -> None:
        """Skip deleted messages if an ack confirms that the epoch is still valid.

        If another reader has taken over, it may have acknowledged the messages.
        """
        if self.ended or not isinstance(view, View) or not view.topics:
            return
        acks, first = self._acks, view.topics[0].first

        def still_valid(outcome: Outcome) -> None:
            if not isinstance(outcome, Acked):
                self._ack_refused(acks, outcome)
            elif acks is self._acks and not self.ended:
                self._skip_to(first)

        if first > self._at.expected:
            self._calls.do(acks.command(), still_valid)

    # -- time and end --

    def link_lost(self) -> None:
        if self.epoch:
            self._fetch()

    def tick(self, now: float) -> None:
        if not self.epoch:
            self._wait_to_leave(now)
            return
        if now >= self._acks.due:
            if self._at.expected > self._fetched:
                self._fetch()
            else:
                self._acks.call()
        if self._patience.over(now):
            self._patience.attempts += 1
            if self._at.gap == self._at.expected:
                self._ask_first()
            self._refetch()
        self._alarm.due(self._acks.due)

    def leave(self, leave: Leave) -> None:
        self._leaving = Leaving(leave, self._host.now + leave.timeout)
        self.want(leave)
        if self.epoch:
            self._depart()
        else:
            self._wait_to_leave(self._host.now)

    def _wait_to_leave(self, now: float) -> None:
        """Wait for the answer to the attach, because the reader may have to detach."""
        if self._leaving is None:
            return
        if now >= self._leaving.deadline:
            self.give_up()
        else:
            self._alarm.due(self._leaving.deadline)

    def give_up(self, drop: Drop | None = None) -> None:
        """End a reader that is leaving, or that a consumer group has dropped.

        Acknowledge nothing for a group, because another member may read the partition.
        """
        self._calls.forget(self._attaching)
        self._over()
        if self._leaving is not None:
            leave = self._leaving.request
            self._host.emit(Finished(leave.ticket, NoAnswer(leave.timeout)), after=0)
            return
        assert drop is not None, f"{self.topic}, {self.subscription} is being read"
        self._acks.void(errors.NotAssigned(self.topic, self.subscription))
        if self.epoch:
            detach = Detach(self.topic, self.subscription, self.epoch, drop.delivered)
            self._calls.do(detach, lambda _: None, RETRY_MAX)

    def _depart(self) -> None:
        """Acknowledge, then detach. The reader ends even if the node does not answer."""
        assert self._leaving is not None
        leave = self._leaving.request
        self._over()
        self._detach(self._finishing(leave.ticket), leave.timeout)

    def _detach(self, then: Then, timeout: float) -> None:
        calls, acks = self._calls, self._acks
        # After a nack, `delivered` is lower than the highest offset already delivered.
        delivered = max(self._at.delivered, self._suspect_below)
        detach = Detach(self.topic, self.subscription, self.epoch, delivered)

        def acked(outcome: Outcome) -> None:
            if isinstance(outcome, NoAnswer) and not outcome.denied:
                then(outcome)
                return
            denied = acks.denied(outcome)
            calls.do(detach, then if denied is None else lambda _: then(denied), timeout)

        calls.do(acks.command(), acked, timeout)

    def _end(self, why: errors.AnyRefusal) -> None:
        if not self.ended:
            self._over()
            self._acks.void(why)
            if self._leaving is not None:
                self._host.emit(Finished(self._leaving.request.ticket, why), after=0)
            self._host.emit(Ended(self.topic, self.subscription, why), after=0)

    def _over(self) -> None:
        self.ended = True
        self._readers.pop((self.topic, self.subscription), None)
