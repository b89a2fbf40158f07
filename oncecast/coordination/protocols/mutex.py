"""LeaseMutex: a lock that outlives its holder, with tokens.

Token 1, 2, 3, ... of a lock each belong to one process, which the Synod settles. A process may ask
for the next token when the last one was released, or its lease is over; the holder itself may at
any time, and so renews.

The settled value names the holder and says how long its lease can last at most, in true seconds.
The lease begins for the holder when it asks, and for every other process when that process hears of
the token, which is later. So the lease ends for the holder first, though processes use different
leases, as long as each clock keeps within the `drift` that its own process states.

Needs Decide and Settled, ViewChanged. Serves Acquire, Release; gives Acquired, Renewed, Lapsed.

A lock without a token is a hint: a holder that was stopped for longer than its lease finds out too
late. Tokens need no clock at all; give them with all that is done under the lock (see Fence).
"""

from __future__ import annotations

from math import inf
from random import Random
from typing import assert_never

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

SERIES = "lock/"  # others may have the Synod settle other things


class Freed(Value, tag="Freed"):
    """I had this token, and hold it no longer; if it gets lost, the end of the lease will do."""

    lock: str
    token: int


class Query(Value, tag="Query"):
    """Is this token still held? I have heard of it, and may have come after it was released."""

    lock: str
    token: int


class Vacant(Value):
    """Timer: the lease of somebody else is over."""

    lock: str


class Renewal(Value):
    """Timer: ask for the next token, in good time."""

    lock: str


class Ending(Value):
    """Timer: our own lease is over."""

    lock: str


class Lock:
    """What this node knows of one lock."""

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
        self.token = 0  # the last one that this node has heard of,
        self.vacant_at = 0.0  # and until when somebody may hold it
        self.freed = 0  # the last one that is known to be released,
        self.queried = 0  # and that others were asked about
        self.wanted = False  # by this node, or held
        self.asked = 0  # the token it has asked for,
        self.asked_at = 0.0  # and when
        self.held = 0  # the token it holds,
        self.until = 0.0  # and until when
        self.stopped_at = 0.0  # when what ran under the last one it held has stopped


class LeaseMutex(Protocol):
    name = "mutex"
    Request = Acquire | Release
    Message = Freed | Query
    Observed = Settled | ViewChanged
    Timer = Vacant | Renewal | Ending

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
        self.longest = (lease + grace) / (1 - drift)  # in true seconds, if our clock is slow
        # A process that restarts is another one: it does not hold what its forerunner held.
        self.myself = f"{me}~{rng.getrandbits(48):012x} {self.longest!r}"
        self.locks: dict[str, Lock] = {}
        self.view: tuple[NodeId, ...] = ()
        self.dropped = 0  # messages that make no sense

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
                    self._free(name, lock)
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
        self.ask(Decide(SERIES + name, lock.asked, self.myself))

    def _settled(self, name: str, lock: Lock, token: int, holder: str) -> None:
        # Who enters needs time to renew: with less than half of its lease left it asks again.
        enough = self.lease if lock.held else self.lease / 2
        in_time = token == lock.asked and self.now < lock.asked_at + enough
        if token >= lock.asked:
            lock.asked = 0
        if token <= lock.token:
            return
        lock.token, lock.vacant_at = token, self.now + self._patience(holder)
        if holder == self.myself:
            if in_time and lock.wanted:
                self._hold(name, lock)
            elif self.now >= lock.stopped_at:
                self._free(name, lock)
        elif lock.held:
            self._lapse(name, lock)
        self._ask_if_vacant(name, lock)

    def _patience(self, holder: str) -> float:
        """Return how long to wait, by our own clock, until the holder's lease is over."""
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
        """Who waits anew must say so: it may have left things half done."""
        token, lock.wanted = lock.held, False
        self._let_go(name, lock)
        self.emit(Lapsed(name, token))

    def _free(self, name: str, lock: Lock) -> None:
        lock.vacant_at, lock.freed = self.now, lock.token
        self._tell_others(Freed(name, lock.token))

    def _tell_others(self, message: Freed | Query) -> None:
        for node in self.view:
            if node != self.me:
                self.send(node, message)


def stated_lease(holder: str, otherwise: float) -> float:
    """Return the true seconds that a holder's lease lasts at most, as the settled value says.

    Values of earlier versions name the holder alone: then every process had to use the same lease.
    """
    try:
        seconds = float(holder.rpartition(" ")[2])
    except ValueError:
        return otherwise
    return seconds if 0 < seconds < inf else otherwise
