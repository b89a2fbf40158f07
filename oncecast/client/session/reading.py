"""Reading for one subscription: each offset once and in order, whatever the network repeats.

Attach once, then fetch: deliveries are checked against the epoch and the offset that must come
next. What is stale or repeated is dropped, what is missing is fetched again. After a lost link the
same epoch goes on by a Fetch, never by an Attach: should a newer life read by now, this one is told
so, and does not take the subscription back. Credit is renewed when half of the window was taken.

An Attach takes over from one reader, named by its epoch: the first expects none, and is told of the
one that there is. So an Attach that comes late, when we are gone, takes nothing from the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecast.client.session.acks import Acks
from oncecast.client.session.calls import Then
from oncecast.client.session.credit import TOLD_BYTES, Credit
from oncecast.client.session.local import (
    NEVER,
    Again,
    Arrived,
    Ended,
    Finished,
    Leave,
    Move,
    NoAnswer,
    Outcome,
    Positioned,
    Settle,
    Skipped,
    Want,
)
from oncecast.client.session.patience import RETRY_MAX, Patience
from oncecast.wire import batch, errors
from oncecast.wire.batch import BadBatch, Message
from oncecast.wire.commands import Attach, Detach, FromOffset, Seek, Start
from oncecast.wire.frames import Chunk, Delivery, Fetch, FlowEnded, Look, Tune, View
from oncecast.wire.results import Acked, Attached, Detached, Sought

if TYPE_CHECKING:
    from oncecast.client.session.client import ClientSession
    from oncecast.client.session.whereabouts import Whereabouts

DAMAGED_MAX = 3  # deliveries of one offset that cannot be read, before we believe it


class Reader:
    def __init__(
        self,
        session: ClientSession,
        topic: str,
        subscription: str,
        life: str,  # no other reading has it: what is still to come of an earlier one is not ours
        start_at: int,
        window: int,
        push: bool,
    ) -> None:
        self.topic, self.subscription, self._life = topic, subscription, life
        self.push = push
        self._session, self._start_at = session, start_at
        self.epoch = 0  # 0: not attached
        self.topic_id = 0  # the life of the topic that it reads
        self.ended = False
        self._leaving: Leave | None = None
        self._leave_by = NEVER
        self._seeks = 0  # so far
        self._moving = 0  # seeks of our own under way
        self._end_of_topic = 0
        self._suspect_below = 0
        self._fetched = -1  # the offset of the last Fetch
        self._credit = Credit(window)
        self._damaged = 0
        self._patience = Patience(session, topic)
        self._go_to(0)
        self._attach(0)

    @property
    def confirmed(self) -> int:
        """Return the offset before which the node has confirmed all acknowledgements."""
        return self._acks.confirmed

    # -- beginning --

    def _attach(self, expected: int) -> None:
        """Take over from the reader with this epoch; 0: there is none."""
        attach = Attach(self.topic, self.subscription, self._life, expected)
        self._attaching = self._session.calls.do(attach, self._attached)

    def _attached(self, outcome: Outcome) -> None:
        if isinstance(outcome, errors.Fenced):
            self._held_by_another(outcome)
            return
        if not isinstance(outcome, Attached):
            assert isinstance(outcome, errors.Refusal), f"{outcome} is no answer to an attach"
            self._end(outcome)
            return
        self.epoch, self._end_of_topic = outcome.epoch, outcome.next
        self.topic_id = outcome.topic_id
        start = self._start_at
        if self._leaving is not None:
            self._depart()
        elif start > outcome.next:
            self._end(errors.OutOfRange(outcome.next))
        elif 0 <= start < outcome.cursor:
            # The node was told more than the application's own books say: back to the books.
            self._expected = outcome.cursor
            self._seek(FromOffset(start), self._went_back)
        else:
            self._position(max(outcome.cursor, start))
            self._skip_to(outcome.first)
            self._fetch()

    def _held_by_another(self, fenced: errors.Fenced) -> None:
        leave = self._leaving
        if leave is None:
            self._attach(fenced.epoch)
        else:  # we are not attached, so there is nothing to detach
            self._over()
            self._session.emit(Finished(leave.ticket, Detached(0)), after=0)

    def _went_back(self, outcome: Outcome) -> None:
        if self.ended:
            return
        if isinstance(outcome, Sought):
            landed, start = self._expected, self._start_at
            self._expected = self._handed = start
            self._skip_to(landed)
        elif isinstance(outcome, errors.Refusal):
            self._end(outcome)

    def _position(self, offset: int) -> None:
        self._acks.void(Acked(offset))
        self._go_to(offset)
        self._credit.forget()
        end = self._end_of_topic = max(self._end_of_topic, offset)
        self._session.emit(Positioned(self.topic, self.subscription, offset, end), after=0)

    def _go_to(self, offset: int) -> None:
        self._expected = offset  # the offset that must come next
        self._handed = offset  # taken by the application: all before it
        self._gap = -1  # the offset that was found missing last
        self._skip = 0  # the first that is kept, if that is not what must come next
        self._bad: errors.BadBatch | None = None  # why what must come next cannot be read
        where = (self.topic, self.subscription, self.epoch, offset)
        self._acks = Acks(self._session, *where, self._ack_refused)

    # -- fetching --

    def _fetch(self) -> None:
        session = self._session
        offset = self._fetched = self._expected
        where = (self.topic, self.subscription, self.epoch, offset)
        fetch = Fetch(*where, self._acks.upto, *self._credit.grant(offset, self._handed))
        way = session.ways.of(self.topic)
        if self.push and way is not session.home:
            session.send(session.home.node, Tune(fetch), after=0)
        else:
            session.send(way.node, fetch, after=0)
        self._acks.carried()
        self._patience.begin()

    def _refetch(self) -> None:
        """Something is missing. The first Fetch from further on would only renew the credit."""
        if self._fetched < self._expected:
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
            if chunk.offset > self._expected:
                self._missing()
                break
            if chunk.offset + chunk.count > self._expected and not self._open(chunk, messages):
                break
        if messages:
            self._patience.attempts = self._damaged = 0
            self._bad = None
            self._patience.begin()
            where = (self.topic, self.subscription)
            low = self._credit.low(self._expected)
            self._session.emit(Arrived(*where, messages, delivery.next, low), after=0)
            self._say_that_it_came()

    def _say_that_it_came(self) -> None:
        """All readings of a client share what the node sends it at once: a word in time, though
        nothing was taken here so far, lest the others wait for it."""
        if self._credit.untold_bytes * len(self._session.readers) >= TOLD_BYTES:
            self._fetch()

    def _missing(self) -> None:
        if self._gap != self._expected:
            self._gap = self._expected
            self._refetch()

    def _open(self, chunk: Chunk, messages: list[Message]) -> bool:
        """Add what is new in `chunk`; false if it is damaged."""
        end = chunk.offset + chunk.count
        suspect_end = min(max(self._suspect_below, self._expected), end)
        try:
            new = self._decoded(chunk, self._expected, suspect_end, redelivered=True)
            new += self._decoded(chunk, suspect_end, end, redelivered=False)
        except BadBatch as error:
            self._unreadable(end, error)
            return False
        messages += new
        self._expected = end
        self._credit.arrived(end, batch.opened_bytes(chunk.batch))
        return True

    def _decoded(self, chunk: Chunk, begin: int, end: int, *, redelivered: bool) -> list[Message]:
        if begin == end:
            return []
        skipped = begin - chunk.offset
        found = batch.messages(
            chunk.batch,
            topic=self.topic,
            offset=begin,
            producer=chunk.producer,
            sequence=chunk.sequence + skipped,
            skip=chunk.skip + skipped,
            count=end - begin,
            redelivered=redelivered,
        )
        if len(found) != end - begin:
            raise BadBatch(f"{len(found)} messages where {end - begin} were announced")
        return found

    def _unreadable(self, end: int, error: BadBatch) -> None:
        self._damaged += 1
        if self._damaged < DAMAGED_MAX:
            self._refetch()
        else:
            offsets = f"offsets {self._expected} to {end - 1} of topic {self.topic!r}"
            self._end_in_order(errors.BadBatch(f"{offsets} cannot be read: {error}"))

    def _end_in_order(self, why: errors.BadBatch) -> None:
        """End this reading once the application has taken what lies before the bad batch."""
        self._bad = why
        if self._handed == self._expected and self._leaving is None:
            self._end(why)
            self._detach(lambda _: None, RETRY_MAX)

    # -- what the application has done --

    def want(self, want: Want | Settle | Leave) -> None:
        self._handed = max(self._handed, min(want.handed, self._expected))
        self._acks.advance(min(want.ack, self._handed))
        self._credit.taken(self._handed)
        if not self.epoch:
            return
        self._pass_skipped()
        if self._bad is not None:
            self._end_in_order(self._bad)
        if self.ended:
            return
        if self._credit.renewable(self._handed):
            self._fetch()
        else:
            self._acks.soon()

    def settle(self, settle: Settle) -> None:
        self.want(settle)
        if self.ended:
            assert self._bad is not None
            self._session.emit(Finished(settle.ticket, self._bad), after=0)
        else:
            self._acks.settle(settle.ticket, settle.ack)

    def _ack_refused(self, acks: Acks, outcome: Outcome) -> None:
        if acks is not self._acks or self.ended:  # of before a move, or of a reading that was left
            if isinstance(outcome, errors.Refusal):
                acks.void(outcome)
            return
        match outcome:
            case errors.Repositioned(epoch, cursor):
                self._repositioned(epoch, cursor)
            case errors.Refusal():
                self._end(outcome)
            case _:
                raise AssertionError(f"{outcome} is no answer to an ack")

    def again(self, again: Again) -> None:
        if self._acks.upto <= again.offset < self._expected:
            self._suspect_below = max(self._suspect_below, again.handed)
            self._expected = self._handed = again.offset
            self._credit.forget()
            self._gap = again.offset  # what is under way lies behind it, and that is no news
            self._refetch()

    # -- moves, by us and by others --

    def move(self, move: Move) -> None:
        self._seek(move.start, self._finishing(move.ticket), move.timeout)

    def _finishing(self, ticket: int) -> Then:
        return lambda outcome: self._session.emit(Finished(ticket, outcome), after=0)

    def _seek(self, start: Start, then: Then, timeout: float = NEVER) -> None:
        self._seeks += 1
        self._moving += 1
        token = f"{self._life}.{self._seeks}"

        def attempt(epoch: int) -> None:
            seek = Seek(self.topic, self.subscription, start, 0, token, epoch)
            self._session.calls.do(seek, sought, timeout)

        def sought(outcome: Outcome) -> None:
            if isinstance(outcome, errors.Repositioned):  # somebody else was quicker
                attempt(outcome.epoch)
                return
            self._moving -= 1
            if self.ended:
                pass  # another reader may have begun, and it is not the one that was moved
            elif isinstance(outcome, Sought):
                self._repositioned(outcome.epoch, outcome.cursor)
            elif isinstance(outcome, NoAnswer):
                self._refetch()  # it tells whether we were moved
            then(outcome)

        attempt(self.epoch)

    def _repositioned(self, epoch: int, cursor: int) -> None:
        if self._moving or epoch <= self.epoch:
            return  # our own seek will tell where to, or it was told already
        self.epoch = epoch
        self._position(cursor)
        self._fetch()

    def flow_ended(self, ended: FlowEnded, way: Whereabouts) -> None:
        if ended.epoch != self.epoch:
            return
        match ended.why:
            case errors.Repositioned(epoch, cursor):
                self._repositioned(epoch, cursor)
            case errors.Overloaded():
                pass  # a Fetch will try again
            case errors.NotHere():
                self._session.ways.not_here(self.topic, way)
            case errors.BadBatch() as why:
                self._end_in_order(why)
            case why:
                self._end(why)

    # -- messages that are gone --

    def _skip_to(self, first: int) -> None:
        """The topic's policy has let go what must come next; the application is told in order."""
        self._skip = first if first > self._expected else 0
        self._pass_skipped()

    def _pass_skipped(self) -> None:
        if self._skip and self._handed == self._expected:
            skipped = Skipped(self.topic, self.subscription, self._expected, self._skip)
            self._session.emit(skipped, after=0)
            self._expected = self._handed = self._skip
            self._skip = 0
            self._fetch()

    def _ask_first(self) -> None:
        calls = self._session.calls
        look = Look(calls.new_id(), self.topic, subscriptions=False)
        calls.look(look, self._looked, timeout=RETRY_MAX)

    def _looked(self, view: View | NoAnswer) -> None:
        """A newer life may have read on, and what it has acknowledged was not let go: it counts
        only if our epoch still stands, which the answer to an ack says."""
        if self.ended or not isinstance(view, View) or not view.topics:
            return
        acks, first = self._acks, view.topics[0].first

        def stands(outcome: Outcome) -> None:
            if not isinstance(outcome, Acked):
                self._ack_refused(acks, outcome)
            elif acks is self._acks and not self.ended:
                self._skip_to(first)

        if first > self._expected:
            self._session.calls.do(acks.command(), stands)

    # -- time, and the end --

    def link_lost(self) -> None:
        if self.epoch:
            self._fetch()

    def tick(self, now: float) -> None:
        if not self.epoch:
            self._wait_to_leave(now)
            return
        if now >= self._acks.due:
            if self._expected > self._fetched:
                self._fetch()
            else:
                self._acks.call()
        if self._patience.over(now):
            self._patience.attempts += 1
            if self._gap == self._expected:
                self._ask_first()
            self._refetch()
        self._session.due(self._acks.due)

    def leave(self, leave: Leave) -> None:
        self._leaving = leave
        self.want(leave)
        if self.epoch:
            self._depart()
        else:
            self._leave_by = self._session.now + leave.timeout
            self._wait_to_leave(self._session.now)

    def _wait_to_leave(self, now: float) -> None:
        """Whether it is attached is not known yet; if it is, it should be detached."""
        if now >= self._leave_by:
            self.give_up()
        else:
            self._session.due(self._leave_by)

    def give_up(self) -> None:
        leave = self._leaving
        assert leave is not None, f"{self.topic}, {self.subscription} is being read"
        self._session.calls.forget(self._attaching)
        self._over()
        self._session.emit(Finished(leave.ticket, NoAnswer(leave.timeout)), after=0)

    def _depart(self) -> None:
        """Acknowledge, then detach; whatever comes of it, this reading is over."""
        leave = self._leaving
        assert leave is not None
        self._over()
        self._detach(self._finishing(leave.ticket), leave.timeout)

    def _detach(self, then: Then, timeout: float) -> None:
        calls = self._session.calls
        handed = max(self._handed, self._suspect_below)  # a nack has moved the one back
        detach = Detach(self.topic, self.subscription, self.epoch, handed)

        def acked(outcome: Outcome) -> None:
            if isinstance(outcome, NoAnswer):
                then(outcome)
            else:
                calls.do(detach, then, timeout)

        calls.do(self._acks.command(), acked, timeout)

    def _end(self, why: errors.AnyRefusal) -> None:
        if not self.ended:
            self._over()
            self._acks.void(why)
            if self._leaving is not None:
                self._session.emit(Finished(self._leaving.ticket, why), after=0)
            self._session.emit(Ended(self.topic, self.subscription, why), after=0)

    def _over(self) -> None:
        self.ended = True
        self._session.readers.pop((self.topic, self.subscription), None)
