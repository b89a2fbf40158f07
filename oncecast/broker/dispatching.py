"""The node's side of shared subscriptions: hand out messages to the workers.

Rules
- A worker says how many messages it wants to hold. The leader proposes one `Lease` at a time for a
  subscription, with the requests of all its workers. It sends messages once their lease is decided.
- Leases are in the log. A new leader sends a worker the messages that the worker has not seen. A
  change of leader delivers no leased message to another worker.
- A worker that disconnects and does not return within `GRACE` seconds has its messages released.
- The leader looks at all shared subscriptions when a lease ends or a retry is due.
- The leader buries dead letters as soon as it can read them.

    Work → · Jobs, WorkEnded ← · proposes Lease and Bury
"""

from __future__ import annotations

from random import Random
from typing import ClassVar

from oncecast.broker import letters
from oncecast.broker.crews import Crew, Crews, Hand, Where
from oncecast.broker.events import (
    AccessChanged,
    Dispatched,
    Execute,
    SharedChanged,
    WorkDue,
    WorkLeaseDue,
)
from oncecast.broker.guard import PrincipalOf, anonymous
from oncecast.broker.lease_queue import LeaseQueue
from oncecast.broker.queue import Queue
from oncecast.broker.service import NO_ASKER, Service
from oncecast.broker.sharing import dead_letters, expiry_of
from oncecast.broker.sizes import work_fault
from oncecast.broker.topic import Topic
from oncecast.kernel.backoff import backoff
from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.replication.events import LeaderChanged, Mended, Missing
from oncecast.security.access import READ
from oncecast.wire import batch, errors
from oncecast.wire import commands as do
from oncecast.wire.frames import Chunk, Elsewhere, Jobs, Work, WorkEnded
from oncecast.wire.results import Buried, Leased, Result
from oncecast.wire.sharing import WORKERS_MAX

GRACE = 1.0  # seconds
DUE_MIN, DUE_MAX = 0.01, 1.0  # minimum and maximum seconds between checks of all subscriptions
TIDY_EVERY = 60.0  # seconds between checks for idle workers
BURY_MIN, BURY_MAX = 1.0, 60.0  # seconds before a refused dead-letter write is retried
KEYS_MAX = 2000  # maximum number of message keys in one Lease
JOBS_BYTES = 1 << 20  # maximum bytes per frame, unless one batch is larger

Found = tuple[Topic, Queue]
NotFound = (
    errors.InvalidTopic
    | errors.NoSuchTopic
    | errors.NotHere
    | errors.NotSubscribed
    | errors.WrongKind
)


class Dispatcher(Protocol):
    name = "dispatcher"
    Message = Work
    Observed: ClassVar = SharedChanged | Dispatched | LeaderChanged | Mended | AccessChanged
    Timer: ClassVar = WorkDue | WorkLeaseDue

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        service: Service,
        # Maximum bytes that one worker holds; a single message may exceed it.
        window_bytes: int = 8 << 20,
        principal_of: PrincipalOf = anonymous,
    ) -> None:
        super().__init__(me, rng)
        self._service, self._principal_of = service, principal_of
        self._window_bytes = window_bytes
        self.crews = Crews()
        self._awaiting_lease: LeaseQueue[Work] = LeaseQueue(self, WorkLeaseDue())
        self._due = 0.0  # when the timer fires; 0 if it is not set
        self._tidy_due = 0.0

    # -- inputs --

    def receive(self, sender: NodeId, work: Work) -> None:
        where = (work.topic, work.subscription)
        if not self._service.leading:
            self.send(sender, self._elsewhere())
            return
        fault = work_fault(work)
        if fault is not None:  # leave out the names, which may be too long for a frame
            self.send(sender, WorkEnded("", "", "", fault))
        elif not self._service.group.leads(self.now):
            self._awaiting_lease.add(sender, work)
        elif not isinstance(found := self._find(where), tuple):
            self.send(sender, WorkEnded(*where, work.worker, found))
        else:
            self._work(sender, work)

    def observe(
        self, event: SharedChanged | Dispatched | LeaderChanged | Mended | AccessChanged
    ) -> None:
        match event:
            case Dispatched():
                if self._service.leading:
                    self._dispatched(event)
            case SharedChanged(topic):
                if self._service.leading:
                    self._changed(topic)
            case LeaderChanged(leader):
                self._lead(leader)
            case Mended():
                for where in self.crews.places():
                    self._send_unsent(where)
                    self._consider(where)
            case AccessChanged():
                self._check_workers()

    def down(self, client: NodeId) -> None:
        self._awaiting_lease.forget(client)
        for where, hand in self.crews.of_client(client):
            self.crews.leave(where, hand)
            self.crews.make(where).gone[hand.worker] = self.now + GRACE
            self._wake_in(GRACE)

    def timeout(self, timer: WorkDue | WorkLeaseDue) -> None:
        if isinstance(timer, WorkLeaseDue):
            leads = self._service.group.leads(self.now)
            ready = not self._service.leading or leads
            for client, work in self._awaiting_lease.due(leased=ready):
                self.receive(client, work)
            return
        self._due = 0.0
        if self._service.leading:
            self._look_at_all()

    # -- leading --

    def _elsewhere(self) -> Elsewhere:
        return Elsewhere(self._service.leader, self._service.group.nodes())

    def _lead(self, leader: NodeId) -> None:
        self._awaiting_lease.take()
        if leader != self.me:
            for client in self.crews.clients():
                self.send(client, self._elsewhere())
        self.crews.clear()
        if leader == self.me:
            self._wake_in(DUE_MIN)

    def _find(self, where: Where) -> Found | NotFound:
        name, label = where
        registry = self._service.machine.registry
        topic = registry.topics.get(name)
        if topic is None:
            return registry.elsewhere(name) or registry.missing(name)
        subscription = topic.subscriptions.get(label)
        if subscription is None:
            return errors.NotSubscribed(name, label)
        if subscription.queue is None:
            return errors.WrongKind(name, label, "exclusive")
        return topic, subscription.queue

    # -- workers --

    def _work(self, client: NodeId, work: Work) -> None:
        where = (work.topic, work.subscription)
        crew = self.crews.make(where)
        if work.worker not in crew.hands and len(crew.hands) >= WORKERS_MAX:
            full = errors.TooMany("workers of the subscription", WORKERS_MAX)
            self.send(client, WorkEnded(*where, work.worker, full))
            return
        hand, new = self.crews.join(where, work.worker, client)
        if new:
            self.watch(client)
        hand.window = work.window
        if new or work.seen < hand.sent:
            hand.sent = work.seen
            hand.sizes.clear()
            self._send(where, crew, hand)
        self._consider(where)

    def _check_workers(self) -> None:
        """End the work of clients that may no longer read."""
        self._awaiting_lease.take()
        access = self._service.machine.registry.access
        for client in self.crews.clients() if not access.open else ():
            principal = self._principal_of(client)
            for where, hand in self.crews.of_client(client):
                if not self._service.machine.registry.permits(principal, READ, *where):
                    self.send(client, WorkEnded(*where, hand.worker, errors.Denied()))
                    self.crews.leave(where, hand)
                    self.crews.make(where).gone[hand.worker] = self.now
                    self._wake_in(DUE_MIN)

    def _changed(self, topic: str) -> None:
        for where in self.crews.places(topic):
            self._consider(where)

    def _end(self, where: Where, why: NotFound) -> None:
        """Tell all workers that the subscription is gone or has moved."""
        crew = self.crews.get(where)
        for hand in crew.hands.values() if crew is not None else ():
            self.send(hand.client, WorkEnded(*where, hand.worker, why))
        self.crews.drop(where)

    # -- leases --

    def _consider(self, where: Where) -> None:
        """Propose a Lease if it would have an effect, and bury dead letters."""
        found, crew = self._find(where), self.crews.get(where)
        if not isinstance(found, tuple):
            self._end(where, found)
            return
        topic, queue = found
        now, expiry = self._service.expected_time(), expiry_of(topic)
        gone = self._gone(crew, queue)
        wants = self._wants(crew, topic, queue)
        ended = queue.ended(now) or queue.front_expired(now, expiry)
        if ended or gone or (wants and queue.leasable(now, topic.index.next, expiry)):
            crew = self.crews.make(where)
            if not crew.leasing:
                self._lease(where, crew, found, wants, gone)
        if queue.dead:
            self._bury(where, found)
        due = queue.next_due()
        if due is not None:
            self._wake_in((due - now) / 1e6)

    def _gone(self, crew: Crew | None, queue: Queue) -> tuple[str, ...]:
        """Return the disconnected workers that hold messages. Forget workers that hold none."""
        if crew is None or not crew.gone:
            return ()
        for worker in list(crew.gone):
            known = queue.workers.get(worker)
            if known is None or not known.held:
                del crew.gone[worker]
        return tuple([worker for worker, due in crew.gone.items() if due <= self.now])

    def _wants(self, crew: Crew | None, topic: Topic, queue: Queue) -> tuple[tuple[str, int], ...]:
        wants = []
        messages = topic.index.next - topic.index.first
        average = topic.index.size // messages + 1 if messages else 1
        for hand in crew.hands.values() if crew is not None else ():
            room = queue.room(hand.worker, hand.window)
            if room <= 0:
                continue
            worker = queue.workers.get(hand.worker)
            hand.keep(worker.grants if worker is not None else ())
            free = self._window_bytes - hand.bytes
            if free > 0:
                most = free // average + 1
                wants.append((hand.worker, hand.window - max(room - most, 0)))
        return tuple(wants)

    def _lease(
        self,
        where: Where,
        crew: Crew,
        found: Found,
        wants: tuple[tuple[str, int], ...],
        gone: tuple[str, ...],
    ) -> None:
        topic, queue = found
        keys: list[int] = []
        if queue.settings.by_key and wants:
            count = min(4 * sum(want for _, want in wants), KEYS_MAX)
            keys = letters.keys_from(self._service, topic, queue.next, count)
            now, expiry = self._service.expected_time(), expiry_of(topic)
            ended = queue.ended(now) or queue.front_expired(now, expiry)
            if not (keys or gone or ended or queue.leasable(now, queue.next, expiry)):
                return  # The next batch is being fetched. The Mended event starts another attempt.
        crew.leasing = True
        lease = do.Lease(*where, 0, wants, gone, queue.next, tuple(keys))
        self.ask(Execute(NO_ASKER, lease))

    def _dispatched(self, event: Dispatched) -> None:
        command = event.command
        if isinstance(command, do.Settles):
            for settle in command.settles:
                if settle.leave:
                    self._left((settle.topic, settle.subscription), settle.worker)
            for where in dict.fromkeys((each.topic, each.subscription) for each in command.settles):
                self._consider(where)
            return
        where = (command.topic, command.subscription)
        crew = self.crews.get(where)
        if crew is None:
            return
        if isinstance(command, do.Bury):
            self._buried(where, crew, event.result)
            return
        crew.leasing = False
        for worker in command.gone:
            crew.gone.pop(worker, None)
        for worker, _ in command.wants:
            hand = crew.hands.get(worker)
            if hand is not None:
                self._send(where, crew, hand)
        for grant in event.result.grants if isinstance(event.result, Leased) else ():
            if grant.worker not in crew.hands:  # the worker has left since the lease was proposed
                crew.gone.setdefault(grant.worker, self.now + GRACE)
                self._wake_in(GRACE)
        self._consider(where)
        self.crews.tidy(where)

    def _left(self, where: Where, worker: str) -> None:
        crew = self.crews.get(where)
        hand = crew.hands.get(worker) if crew is not None else None
        if hand is not None:
            self.crews.leave(where, hand)

    # -- messages --

    def _send(self, where: Where, crew: Crew, hand: Hand) -> None:
        """Send the messages that the worker holds and has not been sent."""
        found = self._find(where)
        if not isinstance(found, tuple):
            return
        topic, queue = found
        for token, offsets in queue.held(hand.worker, hand.sent):
            try:
                chunks = list(letters.chunks_from(self._service, topic, queue, offsets))
            except Missing:
                crew.unsent[hand.worker] = None
                return
            self._send_grant(where, hand, queue, token, offsets, chunks)
        crew.unsent.pop(hand.worker, None)

    def _send_grant(
        self,
        where: Where,
        hand: Hand,
        queue: Queue,
        token: int,
        offsets: list[int],
        chunks: list[tuple[Chunk, int]],
    ) -> None:
        left = queue.until(offsets[0]) - self._service.expected_time()
        parts = parted(chunks)
        for number, part in enumerate(parts):
            jobs = Jobs(
                *where,
                hand.worker,
                previous=hand.sent,
                token=token,
                part=number,
                last=number + 1 == len(parts),
                lease_us=max(left, 0),
                deliveries=tuple([count for _, count in part]),
                chunks=tuple([chunk for chunk, _ in part]),
                renewal_us=queue.settings.lease_us,
            )
            self.send(hand.client, jobs)
        hand.sent = token
        hand.sizes[token] = sum(len(chunk.batch) for chunk, _ in chunks)

    def _send_unsent(self, where: Where) -> None:
        crew = self.crews.get(where)
        for worker in list(crew.unsent) if crew is not None else ():
            assert crew is not None
            self._send(where, crew, crew.hands[worker])

    # -- dead letters --

    def _bury(self, where: Where, found: Found) -> None:
        topic, queue = found
        crew = self.crews.make(where)
        if crew.burying or self.now < crew.bury_at:
            return
        name = dead_letters(*where, queue.settings)
        try:
            command = letters.bury(self._service, topic, where[1], queue, name)
        except Missing:
            return  # the batch is being fetched
        if command is not None:
            crew.burying = True
            self.ask(Execute(NO_ASKER, command))

    def _buried(self, where: Where, crew: Crew, result: Result) -> None:
        crew.burying = False
        if isinstance(result, Buried):
            crew.refusals, crew.bury_at = 0, 0.0
            self._consider(where)
        else:
            crew.bury_at = self.now + backoff(crew.refusals, BURY_MIN, BURY_MAX)
            crew.refusals += 1

    # -- time --

    def _look_at_all(self) -> None:
        registry = self._service.machine.registry
        tidy = self.now >= self._tidy_due
        if tidy:
            self._tidy_due = self.now + TIDY_EVERY
        for topic in list(registry.sharing.values()):
            for label, subscription in list(topic.subscriptions.items()):
                if subscription.queue is not None:
                    self._consider((topic.name, label))
                    if tidy:
                        self._tidy((topic.name, label), subscription.queue)
        for where in self.crews.places():  # timers of subscriptions that no longer exist here
            if not isinstance(found := self._find(where), tuple):
                self._end(where, found)
            self.crews.tidy(where)
        if registry.sharing:
            self._wake_in(DUE_MAX)

    def _tidy(self, where: Where, queue: Queue) -> None:
        """Delete the records of workers that have been idle."""
        crew = self.crews.make(where)
        crew.burying = False
        if queue.idle_workers(self._service.expected_time()) and not crew.leasing:
            crew.leasing = True
            self.ask(Execute(NO_ASKER, do.Lease(*where, 0)))

    def _wake_in(self, seconds: float) -> None:
        """Set the timer, unless it fires earlier."""
        at = self.now + min(max(seconds, DUE_MIN), DUE_MAX)
        if not self._due or at < self._due:
            self._due = at
            self.later(at - self.now, WorkDue())


def parted(chunks: list[tuple[Chunk, int]]) -> list[list[tuple[Chunk, int]]]:
    """Split chunks into parts of about `JOBS_BYTES`. A grant without chunks has one empty part."""
    parts: list[list[tuple[Chunk, int]]] = [[]]
    left = JOBS_BYTES
    for chunk, deliveries in chunks:
        size = batch.opened_bytes(chunk.batch)
        if parts[-1] and size > left:
            parts.append([])
            left = JOBS_BYTES
        parts[-1].append((chunk, deliveries))
        left -= size
    return parts
