"""Applications of the scenario `workers`: one that puts jobs, and workers that misbehave.

A worker acknowledges most jobs. It gives some back, rejects some, and holds some for a long time.
It crashes, and it stalls longer than its leases. Then it settles what it held before, with its old
tokens.
"""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from oncecast.client.session import local
from oncecast.kernel.protocol import NodeId, Value
from oncecast.lab.scenarios.draw import Habits
from oncecast.lab.scenarios.paxos_clients import Client, Publisher
from oncecast.lab.scenarios.workers_reference import SUBSCRIPTION, TOPIC, Lease, Reference
from oncecast.simulator.checkers import Violation
from oncecast.simulator.simulated import Simulation
from oncecast.wire import batch
from oncecast.wire import commands as do
from oncecast.wire.errors import AnyRefusal, Denied, LevelTooLow, NotSubscribed, TooMany
from oncecast.wire.results import Settled
from oncecast.wire.sharing import BY_BACKOFF, Settle, Shared

# Tickets of the first requests; later tickets confirm settlements.
SUBSCRIBE, GHOST, CREATE, CONFIRM = -1, -2, -3, 0
WHERE = (TOPIC, SUBSCRIPTION)
KEYS = (None, None, b"a", b"b")
CALM_LEASE_US = 1_000_000  # shortest lease after the storm


class Feeder(Publisher):
    """Puts numbered jobs, some of them with a key, once the subscription exists."""

    subscribed = False

    def begin(self) -> None:
        self._batches.clear()  # a declared topic exists without its subscription
        self.ask(local.Do(CREATE, do.CreateTopic(TOPIC, 0)))

    def _subscribe(self) -> None:
        self.ask(local.Do(SUBSCRIBE, do.SubscribeShared(TOPIC, SUBSCRIPTION, do.FromEarliest(), 0)))

    def hear(self, event: Value) -> None:
        match event:
            case local.Finished(ticket) if ticket == CREATE:
                self._subscribe()
            case local.Finished(ticket) if ticket == SUBSCRIBE:
                if isinstance(event.outcome, LevelTooLow | TooMany):
                    self.soon(0.1, self._subscribe)
                else:
                    self.go_on()
            case _:
                super().hear(event)

    def packed(self, numbers: range) -> bytes:
        values = [self.value(number) for number in numbers]
        keys = [self.sim.rng.choice(KEYS) for _ in numbers]
        return batch.encode(values, timestamps=1, keys=keys)


class WorkerApp(Client):
    """One worker. `tame` is set when it must finish all jobs."""

    keeps = False

    def __init__(
        self,
        sim: Simulation,
        name: str,
        nodes: list[NodeId],
        *,
        habits: Habits,
        reference: Reference,
        settings: Shared,
        window: int,
        slow: float,
        ends: tuple[type, ...] = (),  # refusals after which the worker starts again
    ) -> None:
        self.reference, self.settings, self._ends = reference, settings, ends
        self._ticket = CONFIRM
        self._began = False
        self.window, self.slow = window, slow
        self.tame = False
        self.started: dict[Lease, None] = {}  # leases under which a job was ever started
        # Leases that earlier processes held, with the names of these processes.
        self.old: list[tuple[str, Lease]] = []
        self._forget()
        super().__init__(sim, name, nodes, crashes=True, habits=habits)

    def _forget(self) -> None:
        self._queue: deque[Lease] = deque()
        self._busy: dict[Lease, None] = {}
        self._given: set[Lease] = set()
        self._lost: set[Lease] = set()
        self._unconfirmed: list[Lease] = []
        self._confirms: dict[int, list[Lease]] = {}
        self._worker = ""

    def begin(self) -> None:
        self.old += [(self._worker, lease) for lease in (*self._busy, *self._queue)]
        self._forget()
        settings = None if self._ends and self._began else self.settings
        self._began = True
        subscribe = do.SubscribeShared(*WHERE, do.FromEarliest(), 0, settings)
        self.ask(local.Do(SUBSCRIBE, subscribe))

    def hear(self, event: Value) -> None:
        match event:
            case local.Finished(ticket, outcome) if ticket == SUBSCRIBE:
                self._subscribed(outcome)
            case local.Finished(ticket, outcome) if ticket > CONFIRM:
                self._confirmed(self._confirms.pop(ticket, []), outcome)
            case local.Given():
                self._given_jobs(event)
            case local.Expired(_, _, leases):
                self._give_back([each for each in self._queue if each in leases])
            case local.Lost(_, _, leases):
                self._lost_leases(leases)
            case local.Ended(_, _, why) if isinstance(why, self._ends):
                self.old += [(self._worker, lease) for lease in (*self._busy, *self._queue)]
                self._forget()
                self.soon(0.1, self.begin)
            case local.Ended():
                raise Violation(f"{self.me}: {event}")
            case _:
                pass

    def _subscribed(self, outcome: local.Outcome) -> None:
        if isinstance(outcome, (LevelTooLow, *self._ends)) or is_denied(outcome, self._ends):
            self.soon(0.1, self.begin)
        elif isinstance(outcome, AnyRefusal | local.NoAnswer):
            raise Violation(f"{self.me}: {outcome}")
        else:
            self.ask(local.Join(*WHERE, self.window))
            self._haunt()

    # -- jobs --

    def _given_jobs(self, given: local.Given) -> None:
        for message, deliveries in zip(given.messages, given.deliveries, strict=True):
            lease = (given.token, message.offset)
            worker, counted = self.reference.holders.get(lease, ("", 0))
            self._worker = worker
            if not worker.startswith(f"{self.me.partition('#')[0]}#") or counted != deliveries:
                raise Violation(
                    f"{self.me} got lease {lease} as delivery {deliveries}, but worker {worker!r} "
                    f"holds it as delivery {counted}"
                )
            if lease in self._given:
                raise Violation(f"{self.me} got lease {lease} twice")
            put = self.reference.values[message.offset]
            if message.value != put:
                raise Violation(
                    f"{self.me} got {message.value!r} at offset {message.offset}, expected {put!r}"
                )
            self._given.add(lease)
            self._queue.append(lease)
            self.soon(self._pause(), self._start)

    def _pause(self) -> float:
        return self.sim.rng.uniform(0.0, 0.02 if self.tame else self.slow)

    def _start(self) -> None:
        if not self._queue:
            return
        lease = self._queue.popleft()
        self._busy[lease] = None
        self.started[lease] = None
        self.soon(self._pause(), lambda: self._finish(lease))

    def _finish(self, lease: Lease) -> None:
        """Settle a job in one of several ways."""
        if lease not in self._busy:
            return
        draw = self.sim.rng.random()
        if self.tame or draw < 0.6:
            self._accept([lease])
        elif draw < 0.75:
            delay = self.sim.rng.choice((BY_BACKOFF, BY_BACKOFF, 0, 200_000))
            self._settle(local.Handle(*WHERE, release=((*lease, delay, "it failed"),)), [lease])
        elif draw < 0.8:
            self._settle(local.Handle(*WHERE, reject=((*lease, "it is bad"),)), [lease])
        elif draw < 0.85:
            self._accept(list(self._busy))
        elif draw < 0.9:
            self._give_back(list(self._queue))
            self.soon(self.slow, lambda: self._finish(lease))
        else:
            self.soon(3 * self.slow, lambda: self._finish(lease))

    def _accept(self, leases: list[Lease]) -> None:
        self._unconfirmed += leases
        self._settle(local.Handle(*WHERE, accept=tuple(leases)), leases)
        if self.sim.rng.random() < 0.5:
            self._ticket += 1
            self._confirms[self._ticket], self._unconfirmed = self._unconfirmed, []
            self.ask(local.Confirm(self._ticket, *WHERE))

    def _give_back(self, leases: list[Lease]) -> None:
        for lease in leases:
            self._queue.remove(lease)
        if leases:
            self.ask(local.Handle(*WHERE, unused=tuple(leases)))

    def _settle(self, handle: local.Handle, leases: list[Lease]) -> None:
        for lease in leases:
            del self._busy[lease]
        self.ask(handle)

    def _lost_leases(self, leases: tuple[Lease, ...]) -> None:
        assert self.reference.model is not None
        self._lost.update(leases)
        for token, offset in leases:
            message = self.reference.model.messages[offset]
            held = message.state == "leased" and (message.token, message.worker) == (
                token,
                self._worker,
            )
            if held:
                raise Violation(
                    f"{self.me} was told that it lost the lease on offset {offset} (token "
                    f"{token}), but it still holds the lease"
                )
            if (token, offset) in self._queue:
                self._queue.remove((token, offset))

    def _confirmed(self, leases: list[Lease], outcome: local.Outcome) -> None:
        # The worker was not told that the subscription ended.
        ended = isinstance(outcome, NotSubscribed) and bool(self._ends)
        if ended or isinstance(outcome, self._ends) or is_denied(outcome, self._ends):
            return
        if not isinstance(outcome, Settled):
            raise Violation(f"{self.me}: {outcome}")
        for token, offset in leases:
            if (token, offset) in self._lost:
                continue
            if self.reference.accepted.get(offset) != token:
                raise Violation(
                    f"{self.me}: the ack of offset {offset} was confirmed, but it is lost"
                )

    def _haunt(self) -> None:
        """Settle with the tokens of an earlier process, under its name or another one."""
        if not self.old or self.tame:
            return
        name, (token, offset) = self.sim.rng.choice(self.old)
        worker = self.sim.rng.choice((name or "ghost", "ghost"))
        run = ((token, offset, 1),)
        accept, renew = (run, ()) if self.sim.rng.random() < 0.5 else ((), run)
        settle = Settle(*WHERE, worker, 1_000_000 + len(self.old), accept, renew=renew)
        self.ask(local.Do(GHOST, settle))
        self.soon(self.sim.rng.uniform(0.0, 1.0), self._haunt)

    # -- the end --

    def calm(self) -> None:
        """Finish all jobs from now on.

        With short leases and a slow disk, no job would ever be settled before its lease ends.
        """
        self.tame = True
        if self.settings.lease_us < CALM_LEASE_US:
            longer = replace(self.settings, lease_us=CALM_LEASE_US)
            subscribe = do.SubscribeShared(*WHERE, do.FromEarliest(), 0, longer)
            self.ask(local.Do(GHOST, subscribe))
        for lease in list(self._busy):
            self._finish(lease)


def is_denied(outcome: local.Outcome, ends: tuple[type, ...]) -> bool:
    """Return whether a permission may have been withdrawn after the node executed the request."""
    return isinstance(outcome, local.NoAnswer) and outcome.denied and Denied in ends
