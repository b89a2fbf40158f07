"""Work on shared subscriptions: hold leased messages, renew their leases and settle them.

Rules
- A worker asks for a window of messages (`Work`). The node sends messages (`Jobs`) whenever the
  worker holds fewer. Tokens grow, and each frame names the token before it. So the worker detects a
  lost frame, and asks again for everything after the last token that it has received completely.
- After a lost link, a redirect or silence, the worker asks again in the same way. Frames of known
  tokens are duplicates.
- The worker renews the lease of every message that it holds, when a third of the lease has passed.
- If the lease of a message has ended, the node refuses to settle or renew that message, but no
  other message. The application learns that it has lost the lease.
- A message that the client cannot decode goes back to the node. After its last delivery it becomes
  a dead letter.
- The name of a worker is used once. So a late copy of its requests cannot concern a later worker.
- A late request can revive a worker that has ended. The client then gives back its messages, and
  leaves again under its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from oncecast.client.session.alarm import Alarm
from oncecast.client.session.calls import Calls
from oncecast.client.session.identity import Identity
from oncecast.client.session.local import (
    NEVER,
    Confirm,
    Ended,
    Expired,
    Finished,
    Given,
    Handle,
    Join,
    Lost,
    NoAnswer,
    OfWorker,
    Outcome,
    Part,
    Window,
)
from oncecast.client.session.patience import Patience
from oncecast.client.session.routes import Routes
from oncecast.client.session.settling import Lease, Settlements, leases_of
from oncecast.kernel.protocol import Protocol
from oncecast.wire import batch, errors
from oncecast.wire.batch import BadBatch
from oncecast.wire.frames import Chunk, Jobs, Work, WorkEnded
from oncecast.wire.message import Message
from oncecast.wire.results import Settled
from oncecast.wire.sharing import BY_BACKOFF, REASON_BYTES_MAX, WINDOW_MAX, Settle

if TYPE_CHECKING:
    from oncecast.client.session.route import Route

RENEWALS = 3  # per lease
RENEW_EVERY_MIN = 0.05  # seconds
# Maximum messages that the session holds for a worker; an honest node does not send more.
HELD_MAX = 2 * WINDOW_MAX

ENDED = 1 << 48  # settlement numbers of ended workers start here; no running worker counts this far
RETURNING_MAX = 100  # maximum ended workers whose messages are being returned

Where = tuple[str, str]  # topic and subscription


class Grant:
    """The messages that the worker holds under one token."""

    __slots__ = ("lease", "offsets", "renew_at", "until")

    def __init__(self) -> None:
        self.offsets: dict[int, None] = {}
        self.lease = 0.0  # seconds that a renewal lasts
        self.until = NEVER
        self.renew_at = NEVER

    def last(self, since: float, left: float, lease: float) -> None:
        """Make the lease last `left` seconds, counted from `since`."""
        self.lease, self.until = lease, since + left
        self.renew_at = since + max(left / RENEWALS, RENEW_EVERY_MIN)


class Incoming:
    """The token whose parts are arriving. The worker has received all of `seen` and before."""

    __slots__ = ("asked", "offsets", "part", "seen", "token")

    def __init__(self) -> None:
        self.seen = self.token = self.part = 0
        self.offsets: dict[int, None] = {}  # offsets that have arrived under `token`
        self.asked = (0, 0)  # the last gap that the worker has requested again

    def accept(self, jobs: Jobs) -> bool:
        """Return whether this is the next part. An earlier part is a duplicate."""
        if jobs.part == 0 and jobs.token != self.token:
            self.token = jobs.token
            self.offsets.clear()
        if jobs.part == 0:
            # The node sends all parts again, perhaps without the messages settled since.
            self.part = 0
        if (jobs.token, jobs.part) != (self.token, self.part):
            return False
        self.part += 1
        return True

    def is_gap(self, jobs: Jobs) -> bool:
        """Return whether an earlier frame is missing."""
        if jobs.previous > self.seen:
            return True
        return jobs.part > (self.part if jobs.token == self.token else 0)


class Parting(NamedTuple):
    request: Part
    deadline: float


class Worker:
    """One worker of one shared subscription. `works` contains all workers of the client."""

    def __init__(
        self,
        host: Protocol,
        alarm: Alarm,
        calls: Calls,
        routes: Routes,
        works: Works,
        join: Join,
        name: str,
    ) -> None:
        self._host, self._alarm, self._routes, self._works = host, alarm, routes, works
        self.topic, self.subscription = join.topic, join.subscription
        self.name, self._window = name, join.window
        self._patience = Patience(host, alarm, routes, join.topic)
        self._settlements = Settlements(calls, *self._where, name, self._settled)
        self._sent_at = 0.0  # when the settlement in flight was first sent
        # Leases that a transaction has ended while a settlement was in flight.
        self._transacted: dict[Lease, None] = {}
        self._incoming = Incoming()
        self._grants: dict[int, Grant] = {}  # by token
        self._tickets: list[tuple[int, tuple[int, ...]]] = []  # each with the mark it waits for
        self._parting: Parting | None = None
        self._work()

    @property
    def _where(self) -> Where:
        return self.topic, self.subscription

    @property
    def held(self) -> int:
        return sum(len(grant.offsets) for grant in self._grants.values())

    # -- messages --

    def _work(self) -> None:
        """Ask for messages, and for a resend of all tokens after the last complete one."""
        work = Work(*self._where, self.name, self._window, self._incoming.seen)
        self._host.send(self._routes.of(self.topic).node, work, after=0)
        self._patience.begin()

    def link_lost(self) -> None:
        if self._parting is None:
            self._work()

    def given(self, jobs: Jobs) -> None:
        incoming = self._incoming
        if self._parting is not None or jobs.token <= incoming.seen:
            return
        if incoming.is_gap(jobs):
            if incoming.asked != (jobs.token, incoming.seen):
                incoming.asked = (jobs.token, incoming.seen)
                self._work()
            return
        if max(self.held, len(incoming.offsets)) >= HELD_MAX or not incoming.accept(jobs):
            return
        self._patience.attempts = 0
        self._patience.begin()
        self._take(jobs)
        if jobs.last:
            incoming.seen = jobs.token
            incoming.offsets.clear()
        self._flush()

    def _take(self, jobs: Jobs) -> None:
        messages: list[Message] = []
        deliveries: list[int] = []
        for chunk, count in zip(jobs.chunks, jobs.deliveries, strict=False):
            new = self._opened(chunk, jobs.token, count)
            messages += new
            deliveries += [count] * len(new)
        if not messages:
            return
        grant = self._grants.setdefault(jobs.token, Grant())
        renewal = jobs.renewal_us or jobs.lease_us
        grant.last(self._host.now, jobs.lease_us / 1e6, renewal / 1e6)
        grant.offsets.update(dict.fromkeys([each.offset for each in messages]))
        self._alarm.due(grant.renew_at)
        given = Given(*self._where, jobs.token, messages, deliveries, self.name)
        self._host.emit(given, after=0)

    def _opened(self, chunk: Chunk, token: int, deliveries: int) -> list[Message]:
        """Return the new messages of a chunk. Give it back if it cannot be decoded."""
        arrived = self._incoming.offsets
        offsets = range(chunk.offset, chunk.offset + max(chunk.count, 0))
        new = [each for each in offsets[:HELD_MAX] if each not in arrived]
        arrived.update(dict.fromkeys(new))
        try:
            found = batch.messages(
                chunk.batch,
                topic=self.topic,
                offset=chunk.offset,
                producer=chunk.producer,
                sequence=chunk.sequence,
                skip=chunk.skip,
                count=chunk.count,
                redelivered=deliveries > 1,
            )
            if len(found) != chunk.count:
                raise BadBatch(f"the batch has {len(found)} messages, not {chunk.count}")
        except BadBatch as error:
            reason = f"the worker cannot read the message: {error}"[:REASON_BYTES_MAX]
            for offset in new:
                self._settlements.release.add((token, offset), (BY_BACKOFF, reason))
            return []
        if len(new) == len(found):
            return found
        wanted = set(new)
        return [each for each in found if each.offset in wanted]

    def ended(self, ended: WorkEnded, route: Route) -> None:
        match ended.why:
            case errors.NotHere():
                self._routes.not_here(self.topic, route)
            case errors.Overloaded():
                pass  # `tick` asks again.
            case errors.Denied() as why if self._settlements.in_flight:
                self._end(why, NoAnswer(NEVER, denied=True))  # the node may have executed it
            case why:
                self._end(why, why)

    # -- requests from the application --

    def window(self, window: Window) -> None:
        self._window = window.window
        self._work()

    def handle(self, handle: Handle) -> None:
        settlements, lost = self._settlements, list[Lease]()
        for token, offset in handle.accept:
            if self._drop(token, offset, lost):
                settlements.accept.add((token, offset), None)
        for token, offset, delay, reason in handle.release:
            if self._drop(token, offset, lost):
                settlements.release.add((token, offset), (delay, reason))
        for token, offset, reason in handle.reject:
            if self._drop(token, offset, lost):
                settlements.reject.add((token, offset), reason)
        for token, offset in handle.unused:
            if self._drop(token, offset, []):
                settlements.unused.add((token, offset), None)
        for token, offset in handle.transacted:
            self._drop(token, offset, [])
            # The settlement in flight may renew a lease that the transaction has ended.
            if self._settlements.busy:
                self._transacted[token, offset] = None
        self._lose(lost)
        self._flush()

    def _drop(self, token: int, offset: int, lost: list[Lease]) -> bool:
        """Stop holding a message. Return False, and add it to `lost`, if its lease is lost."""
        grant = self._grants.get(token)
        if grant is None or offset not in grant.offsets:
            lost.append((token, offset))
            return False
        del grant.offsets[offset]
        if not grant.offsets:
            del self._grants[token]
        self._settlements.renew.waiting.pop((token, offset), None)
        return True

    def confirm(self, confirm: Confirm) -> None:
        self._tickets.append((confirm.ticket, self._settlements.added))
        self._answer_tickets()

    def _answer_tickets(self, cursor: int = 0) -> None:
        waiting, self._tickets = self._tickets, []
        for ticket, mark in waiting:
            if self._settlements.done_since(mark):
                self._host.emit(Finished(ticket, Settled(cursor)), after=0)
            else:
                self._tickets.append((ticket, mark))

    def part(self, part: Part) -> None:
        self._parting = Parting(part, self._host.now + part.timeout)
        self._alarm.due(self._parting.deadline)
        self._grants.clear()
        self._settlements.renew.waiting.clear()
        self._settlements.leave = True
        self._flush()

    # -- settlements --

    def _flush(self) -> None:
        number = self._settlements.number
        self._settlements.flush()
        if self._settlements.number > number:
            self._sent_at = self._host.now

    def _settled(self, settle: Settle, outcome: Outcome) -> None:
        if self._works.get(self._where) is not self:
            return  # the worker has ended
        if not isinstance(outcome, Settled):
            why = outcome if isinstance(outcome, errors.Refusal) else errors.Denied()
            self._end(why, outcome)
            return
        self._renewed(settle)
        lost = list(leases_of(outcome.stale))
        if lost:
            done = {*leases_of(settle.unused), *self._transacted}
            self._lose([lease for lease in lost if lease not in done])
        self._transacted.clear()
        self._answer_tickets(outcome.cursor)
        if settle.leave:
            self._over()
            self._finish_all(outcome)
        else:
            self._flush()

    def _renewed(self, settle: Settle) -> None:
        for token, _, _ in settle.renew:
            grant = self._grants.get(token)
            if grant is not None:
                grant.last(self._sent_at, grant.lease, grant.lease)
                self._alarm.due(grant.renew_at)

    def _lose(self, leases: Iterable[Lease]) -> None:
        """Tell the application that it has lost these leases."""
        lost = tuple(leases)
        if lost:
            for token, offset in lost:
                self._drop(token, offset, [])
            self._host.emit(Lost(*self._where, lost), after=0)

    # -- time and end --

    def tick(self, now: float) -> None:
        if self._parting is not None:
            if now >= self._parting.deadline:
                self._over()
                self._finish_all(NoAnswer(self._parting.request.timeout))
            else:
                self._alarm.due(self._parting.deadline)
            return
        if self._patience.over(now):
            self._patience.attempts += 1
            self._work()
        for token, grant in list(self._grants.items()):
            self._keep(token, grant, now)
        self._flush()

    def _keep(self, token: int, grant: Grant, now: float) -> None:
        """Renew the leases of a grant in time, and report their end."""
        leases = [(token, offset) for offset in grant.offsets]
        if now >= grant.until:
            grant.until = NEVER
            self._host.emit(Expired(*self._where, tuple(leases)), after=0)
        if now >= grant.renew_at:
            self._settlements.renew.waiting.update(dict.fromkeys(leases))
            grant.renew_at = NEVER  # until the node answers
        self._alarm.due(min(grant.renew_at, grant.until))

    def _end(self, why: errors.AnyRefusal, outcome: Outcome) -> None:
        """End the worker. `outcome` answers the requests that wait for settlements."""
        self._over()
        self._finish_all(outcome)
        self._host.emit(Ended(*self._where, why), after=0)

    def _finish_all(self, outcome: Outcome) -> None:
        parting = [] if self._parting is None else [self._parting.request.ticket]
        for ticket in (*[ticket for ticket, _ in self._tickets], *parting):
            self._host.emit(Finished(ticket, outcome), after=0)

    def _over(self) -> None:
        self._works.remove(self._where)


class Works:
    """The workers of a client, by topic and subscription."""

    def __init__(
        self, host: Protocol, identity: Identity, alarm: Alarm, calls: Calls, routes: Routes
    ) -> None:
        self._host, self._identity, self._alarm = host, identity, alarm
        self._calls, self._routes = calls, routes
        self._workers: dict[Where, Worker] = {}
        self._made = 0
        self._returning: dict[str, None] = {}  # ended workers whose messages are being returned

    def __iter__(self) -> Iterator[Worker]:
        return iter(list(self._workers.values()))

    def get(self, where: Where) -> Worker | None:
        return self._workers.get(where)

    def remove(self, where: Where) -> None:
        del self._workers[where]

    def join(self, join: Join) -> None:
        where = (join.topic, join.subscription)
        assert where not in self._workers, f"{where} has a worker"
        self._made += 1
        name = f"{self._identity.incarnation}.w{self._made}"
        self._workers[where] = Worker(
            self._host, self._alarm, self._calls, self._routes, self, join, name
        )

    def request(self, request: OfWorker) -> errors.NotSubscribed | None:
        """Pass a request to its worker. Return a refusal if the worker has ended."""
        worker = self._workers.get((request.topic, request.subscription))
        if worker is None:
            return errors.NotSubscribed(request.topic, request.subscription)
        match request:
            case Window():
                worker.window(request)
            case Handle():
                worker.handle(request)
            case Confirm():
                worker.confirm(request)
            case Part():
                worker.part(request)
        return None

    def receive(self, message: Jobs | WorkEnded, route: Route) -> None:
        worker = self._workers.get((message.topic, message.subscription))
        if worker is not None and message.worker == worker.name:
            if isinstance(message, Jobs):
                worker.given(message)
            else:
                worker.ended(message, route)
        elif isinstance(message, Jobs) and message.worker not in self._returning:
            self._give_back(message)

    def _give_back(self, jobs: Jobs) -> None:
        """Give back the messages of a worker that has ended, and leave again.

        A late request of an earlier process can have revived the worker, too.
        """
        name = jobs.worker
        runs = tuple([(jobs.token, each.offset, each.count) for each in jobs.chunks])
        where = (jobs.topic, jobs.subscription)
        settle = Settle(*where, name, ENDED + jobs.token, unused=runs, leave=True)
        if not settle.fault and len(self._returning) < RETURNING_MAX:
            self._returning[name] = None
            self._calls.do(settle, lambda _: self._returning.pop(name))
