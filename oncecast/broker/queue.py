"""The messages of a shared subscription: leased, waiting for another delivery, blocked or dead.

Only messages between the cursor and `next` have a record here, and only if they are not settled.
So ten million waiting messages cost nothing, and the cursor is the lowest offset with a record.

    fresh ──lease──▶ leased ──accept──▶ settled
      │                │ ▲                 ▲
      │ key is taken   │ └─lease─┐         │ bury
      ▼                ▼         │         │
    blocked ────▶ waiting ───────┘       dead ◀── reject, or too many deliveries

Times are deadlines of the replicated clock. A correction of the clock moves all of them.

A message whose time to live is over is not leased any more. It becomes dead, or is settled at once
if the topic drops expired messages. This happens when it is its turn to be leased. So one message
does not need a record because another one before it expires.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from enum import IntEnum
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import NamedTuple

from oncecast.broker.index import Index
from oncecast.wire.sharing import (
    BY_BACKOFF,
    EXHAUSTED,
    EXPIRED,
    OPEN_MAX,
    REJECTED,
    WORKER_IDLE_US,
    WORKER_LOST,
    WORKERS_MAX,
    Run,
    Settle,
    Shared,
    runs_of,
)


class Condition(IntEnum):
    """The condition of a message without a lease."""

    WAITING = 0  # waits until it is due
    BLOCKED = 1  # waits until earlier messages with its key are settled
    DEAD = 2  # waits until it is buried


WAITING, BLOCKED, DEAD = Condition

# Limits on expiry. Results depend on these limits, so they must never change.
DEAD_MAX = 10_000  # maximum dead messages that wait for burial; at this limit, no more expire
BATCHES_MAX = 10_000  # maximum number of batches that expire in one command


class Expiry(NamedTuple):
    """The lifetimes of a topic, and whether it drops expired messages."""

    messages: Index
    drop: bool


class Death(NamedTuple):
    reason: str
    detail: str = ""  # the reason that the worker gave


class Grant:
    """Offsets that a worker holds under one token. Some of them may be settled already."""

    __slots__ = ("left", "offsets", "token", "until", "worker")

    def __init__(self, worker: str, token: int, until: int, offsets: list[int] | range) -> None:
        self.worker, self.token, self.until, self.offsets = worker, token, until, offsets
        self.left = len(offsets)  # number of offsets that are still leased


class Worker:
    """The grants of a worker, and the number and the result of its last settlement."""

    __slots__ = ("grants", "held", "number", "stale", "used")

    def __init__(self, used: int) -> None:
        self.grants: dict[Grant, None] = {}
        self.held = self.number = 0
        self.stale: tuple[Run, ...] = ()
        self.used = used  # when the worker last got or settled messages


class Held(NamedTuple):
    """The state of an open message, as in a snapshot."""

    offset: int
    deliveries: int
    condition: int  # -1 if leased
    time: int  # the end of the lease, or the time at which the message is due
    token: int
    worker: str
    key: int
    death: Death | None


class Queue:
    __slots__ = (
        "_due",
        "_ending",
        "_lines",
        "_order",
        "_pushed",
        "_ready",
        "counts",
        "dead",
        "keys",
        "leased",
        "next",
        "open",
        "settings",
        "workers",
    )

    def __init__(self, settings: Shared, next: int) -> None:
        self.settings = settings
        self.workers: dict[str, Worker] = {}
        self.reset(next)

    def reset(self, next: int) -> None:
        """Drop all leases and continue with fresh messages at `next`."""
        self.next = next  # the first offset that was never delivered
        self.open: dict[int, Grant | Condition] = {}
        self.counts: dict[int, int] = {}  # deliveries of open messages; 1 if missing
        self.keys: dict[int, int] = {}  # hashes of the keys of open messages
        self.dead: dict[int, Death] = {}
        self.leased = 0
        self._order: deque[int] = deque()  # open offsets, lowest first; some may be settled
        self._due: dict[int, int] = {}  # when each waiting message is due
        self._ready: list[tuple[int, int]] = []  # a heap of (due, offset); some are outdated
        self._ending: list[tuple[int, int, Grant]] = []  # a heap by end; some are outdated
        self._pushed = 0
        self._lines: dict[int, deque[int]] = {}  # open messages of each key, lowest first
        for worker in self.workers.values():
            worker.grants.clear()
            worker.held = 0

    # -- queries --

    @property
    def cursor(self) -> int:
        """Return the lowest offset that is not settled."""
        order = self._order
        while order and order[0] not in self.open:
            order.popleft()
        return order[0] if order else self.next

    @property
    def waiting(self) -> int:
        return len(self._due)

    def open_offsets(self, most: int) -> list[int]:
        """Return the lowest unsettled offsets before `next`, up to `most`."""
        return list(islice((each for each in self._order if each in self.open), most))

    def deliveries(self, offset: int) -> int:
        return self.counts.get(offset, 1)

    def next_due(self) -> int | None:
        """Return the time of the next expiry or retry, or None. It may be too early."""
        self.ended(0)
        while self._ready and self._due.get(self._ready[0][1]) != self._ready[0][0]:
            heappop(self._ready)
        times = [heap[0][0] for heap in (self._ready, self._ending) if heap]
        return min(times, default=None)

    def until(self, offset: int) -> int:
        """Return the end of the lease of a message, or 0 without a lease."""
        grant = self.open.get(offset)
        return grant.until if isinstance(grant, Grant) else 0

    def ended(self, now: int) -> bool:
        """Return whether the lease of a message has ended."""
        while self._ending and not self._ending[0][2].left:
            heappop(self._ending)  # all its messages are settled or renewed
        return bool(self._ending) and self._ending[0][0] <= now

    def leasable(self, now: int, end: int, expiry: Expiry | None = None) -> bool:
        """Return whether a worker could get a message now."""
        if self.leased >= self.settings.in_flight_max or is_stuck(self, expiry):
            return False
        fresh = self.next < end and len(self.open) < OPEN_MAX
        return fresh or bool(self._ready and self._ready[0][0] <= now)

    def room(self, worker: str, window: int) -> int:
        """Return how many more messages the worker may get."""
        known = self.workers.get(worker)
        if known is None:
            return window if len(self.workers) < WORKERS_MAX else 0
        return window - known.held

    def held(self, worker: str, after: int = 0) -> Iterator[tuple[int, list[int]]]:
        """Yield the tokens after `after` with the offsets that the worker holds, in order."""
        known = self.workers.get(worker)
        found: dict[int, list[int]] = {}
        for grant in known.grants if known is not None else ():
            if grant.token > after:
                mine = [each for each in grant.offsets if self.open.get(each) is grant]
                found.setdefault(grant.token, []).extend(mine)
        yield from sorted(found.items())

    # -- leases --

    def expire(self, now: int, first: int, reason: str) -> None:
        """Release messages whose lease has ended. Forget messages that the topic has dropped.

        A message that may not be delivered again dies for this reason.
        """
        while self._ending and self._ending[0][0] <= now:
            grant = heappop(self._ending)[2]
            for offset in grant.offsets if grant.left else ():
                if self.open.get(offset) is grant:
                    self._put_back(offset, grant, now, BY_BACKOFF, Death(reason))
        if self.cursor < first:
            self._forget_before(first)

    def idle_workers(self, now: int) -> list[str]:
        """Return the workers that have held nothing for a long time."""
        idle = now - WORKER_IDLE_US
        return [n for n, each in self.workers.items() if not each.held and each.used <= idle]

    def lose(self, worker: str, now: int) -> None:
        """Release all messages of a worker that has disconnected."""
        known = self.workers.get(worker)
        for grant in list(known.grants) if known is not None else ():
            for offset in grant.offsets:
                if self.open.get(offset) is grant:
                    self._put_back(offset, grant, now, BY_BACKOFF, Death(WORKER_LOST))

    def take(
        self,
        count: int,
        now: int,
        end: int,
        keys: Iterable[int] = (),
        expiry: Expiry | None = None,
    ) -> list[int]:
        """Return up to `count` messages to lease: those that are due, then fresh ones.

        `end` is the end of the topic. With `by_key`, `keys` has the keys of the fresh messages.
        """
        count = min(count, self.settings.in_flight_max - self.leased)
        taken: list[int] = []
        while len(taken) < count and self._ready and self._ready[0][0] <= now:
            if is_stuck(self, expiry):
                return taken
            due, offset = heappop(self._ready)
            if self._due.get(offset) == due:
                del self._due[offset]
                if expiry is not None and expiry.messages.expired(offset, now):
                    self._end(offset, expiry)
                    continue
                self.counts[offset] = self.deliveries(offset) + 1
                taken.append(offset)
        if self.settings.by_key:
            self._take_by_key(taken, count, end, keys, now, expiry)
            return taken
        if expiry is not None:
            self._take_living(taken, count, end, now, expiry)
            return taken
        fresh = min(count - len(taken), end - self.next, OPEN_MAX - len(self.open))
        if fresh > 0:
            offsets = range(self.next, self.next + fresh)
            self._order.extend(offsets)
            taken.extend(offsets)
            self.next += fresh
        return taken

    def _take_living(
        self, taken: list[int], count: int, end: int, now: int, expiry: Expiry
    ) -> None:
        """Take fresh messages, batch by batch, and end those that have expired."""
        fresh = 0
        while len(taken) < count and self.next < end and len(self.open) + fresh < OPEN_MAX:
            if expiry.messages.expired(self.next, now):
                if not self._end_fresh(now, expiry):
                    return
                continue
            left = min(count - len(taken), OPEN_MAX - len(self.open) - fresh)
            offsets = range(self.next, min(expiry.messages.batch_end(self.next), self.next + left))
            self._order.extend(offsets)
            taken.extend(offsets)
            self.next += len(offsets)
            fresh += len(offsets)

    def _take_by_key(
        self,
        taken: list[int],
        count: int,
        end: int,
        keys: Iterable[int],
        now: int,
        expiry: Expiry | None,
    ) -> None:
        opened = len(self.open)
        for key in keys:
            if len(taken) >= count or opened >= OPEN_MAX or self.next >= end:
                return
            if expiry is not None and expiry.messages.expired(self.next, now):
                if not self._end_fresh(now, expiry, most=1):
                    return
                opened += not expiry.drop
                continue
            offset = self.next
            self.next += 1
            opened += 1
            self._order.append(offset)
            line = self._lines.setdefault(key, deque()) if key else deque()
            if key:
                line.append(offset)
                self.keys[offset] = key
            if len(line) > 1:
                self.open[offset], self.counts[offset] = BLOCKED, 0
            else:
                taken.append(offset)

    # -- time to live --

    def front_expired(self, now: int, expiry: Expiry | None) -> bool:
        """Return whether the next message to lease has expired."""
        if expiry is None or is_stuck(self, expiry):
            return False
        if self._front_retry_expired(now, expiry):
            return True
        free = expiry.drop or len(self.open) < OPEN_MAX
        fresh = self.next < expiry.messages.next and free
        return fresh and expiry.messages.expired(self.next, now) > 0

    def end_expired(self, now: int, expiry: Expiry) -> None:
        """End expired messages, until the next message to lease has not expired."""
        left = BATCHES_MAX
        while left > 0 and self._front_retry_expired(now, expiry) and not is_stuck(self, expiry):
            offset = heappop(self._ready)[1]
            del self._due[offset]
            self._end(offset, expiry)
            left -= 1
        while left > 0 and self._end_fresh(now, expiry):
            left -= 1

    def _front_retry_expired(self, now: int, expiry: Expiry) -> bool:
        ready = self._ready
        while ready and self._due.get(ready[0][1]) != ready[0][0]:
            heappop(ready)
        return bool(ready) and ready[0][0] <= now and expiry.messages.expired(ready[0][1], now) > 0

    def _end_fresh(self, now: int, expiry: Expiry, most: int = OPEN_MAX) -> int:
        """End the fresh messages of the next batch, if it has expired. Return how many."""
        if self.next >= expiry.messages.next:
            return 0
        count = min(expiry.messages.expired(self.next, now), most)
        if not expiry.drop:
            count = max(min(count, DEAD_MAX - len(self.dead), OPEN_MAX - len(self.open)), 0)
            for offset in range(self.next, self.next + count):
                self._order.append(offset)
                self.counts[offset] = 0
                self._die(offset, Death(EXPIRED))
        self.next += count
        return count

    def _end(self, offset: int, expiry: Expiry) -> None:
        """End a message that waits for another delivery."""
        if expiry.drop:
            self.close(offset)
        else:
            self._die(offset, Death(EXPIRED))

    def grant(self, worker: str, token: int, now: int, offsets: list[int]) -> None:
        """Lease these messages, which `take` has returned."""
        grant = Grant(worker, token, now + self.settings.lease_us, offsets)
        known = self.workers.get(worker)
        if known is None:
            known = self.workers[worker] = Worker(now)
        known.used = now
        self._hold(known, grant)

    def _hold(self, known: Worker, grant: Grant) -> None:
        known.grants[grant] = None
        known.held += len(grant.offsets)
        self.leased += len(grant.offsets)
        self.open.update(dict.fromkeys(grant.offsets, grant))
        self._pushed += 1
        heappush(self._ending, (grant.until, self._pushed, grant))

    # -- settlements --

    def settle(self, settle: Settle, now: int) -> tuple[Run, ...]:
        """Apply a settlement, and return its stale runs."""
        known = self.workers.get(settle.worker)
        if known is not None and settle.number <= known.number:
            return known.stale if settle.number == known.number else ()
        stale: list[tuple[int, int]] = []
        for run in settle.accept:
            for offset, grant in self._current(settle.worker, run, stale):
                self._unlease(offset, grant)
                self.close(offset)
        for token, first, count, delay, reason in settle.release:
            for offset, grant in self._current(settle.worker, (token, first, count), stale):
                self._put_back(offset, grant, now, delay, Death(EXHAUSTED, reason))
        for token, first, count, reason in settle.reject:
            for offset, grant in self._current(settle.worker, (token, first, count), stale):
                self._unlease(offset, grant)
                self._die(offset, Death(REJECTED, reason))
        for run in settle.unused:
            for offset, grant in self._current(settle.worker, run, stale):
                self._unlease(offset, grant)
                self.counts[offset] = self.deliveries(offset) - 1
                self._wait(offset, 0)
        for run in settle.renew:
            self._renew(settle.worker, run, now, stale)
        if settle.leave:
            self.lose(settle.worker, now)
        found = tuple(runs_of(stale))
        if known is not None:
            known.number, known.stale, known.used = settle.number, found, now
        return found

    def _current(
        self, worker: str, run: Run, stale: list[tuple[int, int]]
    ) -> Iterator[tuple[int, Grant]]:
        """Yield the offsets of a run that the worker holds under its token. Add others to stale."""
        token, first, count = run
        for offset in range(first, first + count):
            grant = self.open.get(offset)
            if type(grant) is Grant and grant.token == token and grant.worker == worker:
                yield offset, grant
            else:
                stale.append((token, offset))

    def stale(self, worker: str, runs: tuple[Run, ...]) -> int | None:
        """Return the first offset that the worker does not hold under its token, or None."""
        stale: list[tuple[int, int]] = []
        for run in runs:
            for _ in self._current(worker, run, stale):
                pass
        return stale[0][1] if stale else None

    def accept(self, worker: str, runs: tuple[Run, ...], now: int) -> None:
        """Settle messages that the worker holds."""
        for run in runs:
            for offset, grant in self._current(worker, run, []):
                self._unlease(offset, grant)
                self.close(offset)
        self.workers[worker].used = now

    def _renew(self, worker: str, run: Run, now: int, stale: list[tuple[int, int]]) -> None:
        renewed = []
        for offset, grant in self._current(worker, run, stale):
            self._unlease(offset, grant)
            renewed.append(offset)
        if renewed:
            until = now + self.settings.lease_us
            self._hold(self.workers[worker], Grant(worker, run[0], until, renewed))

    def _unlease(self, offset: int, grant: Grant) -> None:
        worker = self.workers[grant.worker]
        worker.held -= 1
        self.leased -= 1
        grant.left -= 1
        if not grant.left:
            del worker.grants[grant]

    def _put_back(self, offset: int, grant: Grant, now: int, delay: int, death: Death) -> None:
        """Deliver a message again after the delay, unless this was its last allowed delivery."""
        self._unlease(offset, grant)
        count, most = self.deliveries(offset), self.settings.deliveries_max
        if most and count >= most:
            self._die(offset, death)
            return
        self._wait(offset, now + (self.backoff(count) if delay == BY_BACKOFF else delay))

    def backoff(self, count: int) -> int:
        """Return the delay after `count` deliveries."""
        settings = self.settings
        return min(settings.backoff_min_us << min(max(count, 1) - 1, 62), settings.backoff_max_us)

    def _wait(self, offset: int, due: int) -> None:
        self.open[offset] = WAITING
        self._due[offset] = due
        heappush(self._ready, (due, offset))

    def _die(self, offset: int, death: Death) -> None:
        self.open[offset] = DEAD
        self.dead[offset] = death

    def close(self, offset: int) -> None:
        """Forget a settled message, which has no lease. The next message with its key may go."""
        del self.open[offset]
        self.counts.pop(offset, None)
        self._due.pop(offset, None)
        self.dead.pop(offset, None)
        key = self.keys.pop(offset, 0)
        if key:
            line = self._lines[key]
            first = line[0] == offset
            line.remove(offset)
            if not line:
                del self._lines[key]
            elif first and self.open[line[0]] is BLOCKED:
                self._wait(line[0], 0)

    def _forget_before(self, first: int) -> None:
        """Close messages that the topic has dropped unread. Leased ones stay with their worker."""
        self.next = max(self.next, first)
        for offset in [each for each in self._order if each < first]:
            if type(self.open.get(offset)) is Condition:
                self.close(offset)

    # -- the clock --

    def shift(self, by: int) -> None:
        """Move all deadlines, because the clock was corrected. 0 stays: it means at once."""
        self._due = {each: max(due + by, 0) if due else 0 for each, due in self._due.items()}
        self._ready = [(due, offset) for offset, due in self._due.items()]
        heapify(self._ready)
        grants = [grant for worker in self.workers.values() for grant in worker.grants]
        for grant in grants:
            grant.until += by
        self._ending = [(grant.until, number, grant) for number, grant in enumerate(grants)]
        heapify(self._ending)
        self._pushed = len(grants)
        for worker in self.workers.values():
            worker.used += by

    # -- snapshots --

    def messages(self) -> Iterator[Held]:
        """Yield the open messages, lowest offset first."""
        for offset in self._order:
            found = self.open.get(offset)
            if found is None:
                continue
            count, key = self.deliveries(offset), self.keys.get(offset, 0)
            if isinstance(found, Grant):
                yield Held(offset, count, -1, found.until, found.token, found.worker, key, None)
            else:
                due, death = self._due.get(offset, 0), self.dead.get(offset)
                yield Held(offset, count, int(found), due, 0, "", key, death)

    def restore(self, messages: Iterable[Held]) -> None:
        """Add the messages of a snapshot. The workers must exist."""
        grants: dict[tuple[int, int], list[int]] = {}
        owner: dict[int, str] = {}
        for each in messages:
            offset = each.offset
            self._order.append(offset)
            if each.deliveries != 1:
                self.counts[offset] = each.deliveries
            if each.key:
                self.keys[offset] = each.key
                self._lines.setdefault(each.key, deque()).append(offset)
            if each.condition < 0:
                grants.setdefault((each.token, each.time), []).append(offset)
                owner[each.token] = each.worker
            elif each.condition == WAITING:
                self._wait(offset, each.time)
            elif each.condition == DEAD:
                self._die(offset, each.death or Death(REJECTED))
            else:
                self.open[offset] = BLOCKED
        for (token, until), offsets in grants.items():
            worker = owner[token]
            self._hold(self.workers[worker], Grant(worker, token, until, offsets))


def is_stuck(queue: Queue, expiry: Expiry | None) -> bool:
    """Return whether no message may be leased or expire until dead ones are buried."""
    return expiry is not None and len(queue.dead) >= DEAD_MAX


def shares(rooms: list[int], count: int) -> list[int]:
    """Return how many of `count` messages each worker gets, divided as evenly as possible."""
    given = [0] * len(rooms)
    left = len(rooms)
    for at in sorted(range(len(rooms)), key=lambda each: rooms[each]):
        given[at] = min(rooms[at], -(-count // left))
        count -= given[at]
        left -= 1
    return given
