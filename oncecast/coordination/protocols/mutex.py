"""LeaseMutex: a lock with leases and fencing tokens, which survives a crash of its holder.

The tokens of a lock are 1, 2, 3, ... For each token, the Synod settles on one holder. A process may
ask for the next token when the last token was released or its lease has expired. The holder may ask
at any time to renew its lease.

The settled value contains the holder and the longest time that its lease can last, in true seconds.
For the holder, the lease starts when it asks. For every other process, it starts when that process
learns the token, which is later. So the lease ends for the holder first, as long as each clock
stays within the `drift` of its process. Processes may use different leases.

Needs Decide and Settled, ViewChanged. Serves Acquire and Release. Emits Acquired, Renewed and
Lapsed.

A lock without a token is only a hint: a holder that is paused for longer than its lease notices
this too late. Tokens do not depend on clocks. Pass them to the protected resource (see Fence).
"""

from __future__ import annotations

from math import inf
from random import Random
from typing import ClassVar, assert_never

from oncecast.coordination.protocols.events import (
    Acquire,
    Acquired,
    Decide,
    Lapsed,
    Release,
    Renewed,
    Settled,
    ViewChanged,
)
from oncecast.coordination.protocols.synod_messages import NUMBER_MAX
from oncecast.kernel.protocol import NodeId, Protocol, Value

SERIES = "lock/"  # other protocols use other series of the Synod


class Freed(Value, tag="Freed"):
    """The sender has released this token. If this message is lost, the lease ends instead."""

    lock: str
    token: int


class Query(Value, tag="Query"):
    """Ask whether this token was released, perhaps before the sender joined."""

    lock: str
    token: int


class Vacant(Value):
    """Timer: another process's lease has expired."""

    lock: str


class Renewal(Value):
    """Timer: renew the lease."""

    lock: str


class Ending(Value):
    """Timer: this node's lease has expired."""

    lock: str


class Lock:
    """This node's state for one lock."""

    __slots__ = (
        "asked",
        "asked_at",
        "freed",
        "held",
        "queried",
        "stopped_at",
        "token",
        "until",
        "vacant_at",
        "wanted",
    )

    def __init__(self) -> None:
        self.token = 0  # the last token that this node knows
        self.vacant_at = 0.0  # when the lease of that token ends
        self.freed = 0  # the last token known to be released
        self.queried = 0  # the last token for which a Query was sent
        self.wanted = False  # whether this node waits for the lock or holds it
        self.asked = 0  # the token that this node has requested
        self.asked_at = 0.0
        self.held = 0  # the token that this node holds
        self.until = 0.0  # when this node's lease ends
        self.stopped_at = 0.0  # when this node stopped its work under its last token


class LeaseMutex(Protocol):
    name = "mutex"
    Request: ClassVar = Acquire | Release
    Message: ClassVar = Freed | Query
    Observed: ClassVar = Settled | ViewChanged
    Timer: ClassVar = Vacant | Renewal | Ending

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        lease: float = 10.0,
        grace: float = 0.0,
        drift: float = 0.01,
    ) -> None:
        super().__init__(me, rng)
        self.lease, self.grace, self.drift = lease, grace, drift
        self.longest = (lease + grace) / (1 - drift)  # in true seconds, if the local clock is slow
        # A restarted process has a new identity, and does not hold its earlier locks.
        self.identity = f"{me}~{rng.getrandbits(48):012x} {self.longest!r}"
        self.locks: dict[str, Lock] = {}
        self.view: tuple[NodeId, ...] = ()
        self.dropped = 0  # invalid messages

    def request(self, request: Acquire | Release) -> None:
        lock = self._lock(request.lock)
        match request:
            case Acquire(name):
                lock.wanted = True
                self._ask_if_vacant(name, lock)
            case Release(name):
                lock.wanted, lock.stopped_at = False, self.now
                if lock.held:
                    self._let_go(name, lock)
                    self._announce_freed(name, lock)
            case _:
                assert_never(request)

    def observe(self, event: Settled | ViewChanged) -> None:
        match event:
            case ViewChanged(view):
                self.view = view
            case Settled(series, token, holder):
                if series.startswith(SERIES):
                    name = series.removeprefix(SERIES)
                    self._settled(name, self._lock(name), token, holder)
            case _:
                assert_never(event)

    def receive(self, sender: NodeId, message: Freed | Query) -> None:
        if not 1 <= message.token < NUMBER_MAX:
            self.dropped += 1
            return
        match message:
            case Freed(name, token):
                self._note_freed(name, self._lock(name), token)
            case Query(name, token):
                if name in self.locks and self.locks[name].freed >= token:
                    self.send(sender, Freed(name, self.locks[name].freed))
            case _:
                assert_never(message)

    def _note_freed(self, name: str, lock: Lock, token: int) -> None:
        if token == lock.held:
            return
        lock.freed = max(lock.freed, token)
        if token < lock.token:
            return
        if lock.held:
            self._lapse(name, lock)
        lock.token, lock.vacant_at = token, self.now
        if lock.asked <= lock.token:
            lock.asked = 0
        self._ask_if_vacant(name, lock)

    def timeout(self, timer: Vacant | Renewal | Ending) -> None:
        name, lock = timer.lock, self.locks[timer.lock]
        match timer:
            case Vacant():
                self._ask_if_vacant(name, lock)
            case Renewal():
                self._ask(name, lock)
            case Ending():
                lock.vacant_at = self.now
                self._lapse(name, lock)
            case _:
                assert_never(timer)

    def _lock(self, name: str) -> Lock:
        return self.locks.setdefault(name, Lock())

    def _ask_if_vacant(self, name: str, lock: Lock) -> None:
        if not lock.wanted or lock.held or lock.asked:
            return
        if self.now < lock.vacant_at:
            self.later(lock.vacant_at - self.now, Vacant(name))
            if lock.queried < lock.token:
                lock.queried = lock.token
                self._tell_others(Query(name, lock.token))
        else:
            self._ask(name, lock)

    def _ask(self, name: str, lock: Lock) -> None:
        lock.asked, lock.asked_at = lock.token + 1, self.now
        self.ask(Decide(SERIES + name, lock.asked, self.identity))

    def _settled(self, name: str, lock: Lock, token: int, holder: str) -> None:
        # A new holder needs time to renew. If less than half of its lease is left, it asks again.
        enough = self.lease if lock.held else self.lease / 2
        in_time = token == lock.asked and self.now < lock.asked_at + enough
        if token >= lock.asked:
            lock.asked = 0
        if token <= lock.token:
            return
        lock.token, lock.vacant_at = token, self.now + self._lease_of(holder)
        if holder == self.identity:
            if in_time and lock.wanted:
                self._hold(name, lock)
            elif self.now >= lock.stopped_at:
                self._announce_freed(name, lock)
        elif lock.held:
            self._lapse(name, lock)
        self._ask_if_vacant(name, lock)

    def _lease_of(self, holder: str) -> float:
        """Return how long the holder's lease can last, at most, by the local clock."""
        return stated_lease(holder, self.longest) * (1 + self.drift)

    def _hold(self, name: str, lock: Lock) -> None:
        self.emit((Renewed if lock.held else Acquired)(name, lock.token))
        lock.held, lock.until = lock.token, lock.asked_at + self.lease
        lock.stopped_at = lock.until + self.grace
        self.later(lock.until - self.now, Ending(name))
        self.later((lock.until - self.now) / 2, Renewal(name))

    def _let_go(self, name: str, lock: Lock) -> None:
        lock.held = 0
        self.cancel(Ending(name))
        self.cancel(Renewal(name))

    def _lapse(self, name: str, lock: Lock) -> None:
        """Give up the lock, because its lease is lost. The application must acquire it again."""
        token, lock.wanted = lock.held, False
        self._let_go(name, lock)
        self.emit(Lapsed(name, token))

    def _announce_freed(self, name: str, lock: Lock) -> None:
        lock.vacant_at, lock.freed = self.now, lock.token
        self._tell_others(Freed(name, lock.token))

    def _tell_others(self, message: Freed | Query) -> None:
        for node in self.view:
            if node != self.me:
                self.send(node, message)


def stated_lease(holder: str, default: float) -> float:
    """Return the longest lease time in a settled value, in true seconds.

    Return `default` for a value from an earlier version, which contains only the holder.
    """
    try:
        seconds = float(holder.rpartition(" ")[2])
    except ValueError:
        return default
    return seconds if 0 < seconds < inf else default
