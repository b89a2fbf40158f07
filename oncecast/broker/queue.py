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
from itertools import islice
from typing import NamedTuple

from oncecast.broker.endings import Endings, Grant
from oncecast.broker.index import Index
from oncecast.broker.key_lines import KeyLines
from oncecast.broker.retries import TIDY_MIN, Retries
from oncecast.wire.limits import NAME_BYTES_MAX
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
    DEAD = 2  # waits to become a dead letter


WAITING, BLOCKED, DEAD = Condition

# Limits on expiry.
# Never change these limits: all replicas must compute the same result for the same command.
DEAD_MAX = 10_000  # maximum number of messages in DEAD; at this limit, no more expire
BATCHES_MAX = 10_000  # maximum number of batches that expire in one command

# The name under which undecided transactions hold messages. It is too long for a worker.
HOLDER = "transaction".ljust(NAME_BYTES_MAX + 1)
NEVER_ENDS = 1 << 62  # the end of such a lease; a correction of the clock does not change it


class Expiry(NamedTuple):
    """The lifetimes of a topic, and whether it drops expired messages."""

    messages: Index
    drop: bool


class Death(NamedTuple):
    reason: str
    detail: str = ""  # the reason that the worker gave


class Worker:
    """The grants of a worker, and the number and the result of its last settlement."""

    __slots__ = ("grants", "held", "name", "number", "stale", "used")

    def __init__(self, name: str, used: int) -> None:
        self.name = name  # shared by all grants, because each command has a copy of its own
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


# Long, because every change of a message's condition is here.
class Queue:
    __slots__ = (
        "_ending",
        "_lines",
        "_order",
        "_retries",
        "counts",
        "dead",
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
        self.dead: dict[int, Death] = {}
        self.leased = 0
        self._order: deque[int] = deque()  # open offsets, lowest first; some may be settled
        self._retries = Retries()
        self._ending = Endings()
        self._lines = KeyLines()
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
        return len(self._retries)

    def open_offsets(self, most: int) -> list[int]:
        """Return the lowest unsettled offsets before `next`, up to `most`."""
        return list(islice((each for each in self._order if each in self.open), most))

    def deliveries(self, offset: int) -> int:
        return self.counts.get(offset, 1)

    def next_due(self) -> int | None:
        """Return the time of the next expiry or retry, or None."""
        end, retry = self._ending.next, self._retries.next
        if retry is None:
            return end
        return retry[0] if end is None else min(end, retry[0])

    def until(self, offset: int) -> int:
        """Return the end of the lease of a message, or 0 without a lease."""
        grant = self.open.get(offset)
        return grant.until if isinstance(grant, Grant) else 0

    def ended(self, now: int) -> bool:
        """Return whether the lease of a message has ended."""
        end = self._ending.next
        return end is not None and end <= now

    def leasable(self, now: int, end: int, expiry: Expiry | None = None) -> bool:
        """Return whether a worker could get a message now."""
        if self.leased >= self.settings.in_flight_max or is_stuck(self, expiry):
            return False
        fresh = self.next < end and len(self.open) < OPEN_MAX
        return fresh or self._retries.ready(now)

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
        for grant in self._ending.ended(now):
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
        if len(self._order) > 2 * len(self.open) + TIDY_MIN:
            # Without this, a message that is not settled for a day would keep all later offsets.
            self._order = deque([each for each in self._order if each in self.open])
        retries = self._retries
        count = min(count, self.settings.in_flight_max - self.leased)
        taken: list[int] = []
        while len(taken) < count and retries.ready(now):
            if is_stuck(self, expiry):
                return taken
            offset = retries.pop()
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
            self._take_fresh(taken, self.next + fresh)
        return taken

    def _take_fresh(self, taken: list[int], end: int) -> None:
        offsets = list(range(self.next, end))  # both lists share the integers
        self._order.extend(offsets)
        taken.extend(offsets)
        self.next = end

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
            end_of_batch = min(expiry.messages.batch_end(self.next), self.next + left)
            fresh += end_of_batch - self.next
            self._take_fresh(taken, end_of_batch)

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
            if key and self._lines.add(offset, key):
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
            self._end(self._retries.pop(), expiry)
            left -= 1
        while left > 0 and self._end_fresh(now, expiry):
            left -= 1

    def _front_retry_expired(self, now: int, expiry: Expiry) -> bool:
        first = self._retries.next
        if first is None or first[0] > now:
            return False
        return expiry.messages.expired(first[1], now) > 0

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
        known = self.workers.get(worker)
        if known is None:
            known = self.workers[worker] = Worker(worker, now)
        known.used = now
        self._hold(known, token, now + self.settings.lease_us, offsets)

    def _hold(self, known: Worker, token: int, until: int, offsets: list[int]) -> None:
        grant = Grant(known.name, token, until, offsets)
        known.grants[grant] = None
        known.held += len(offsets)
        self.leased += len(offsets)
        self.open.update(dict.fromkeys(offsets, grant))
        if until != NEVER_ENDS:
            self._ending.add(grant)

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

    # -- transactions across groups: a transaction holds messages until it is decided --

    def hold(self, worker: str, runs: tuple[Run, ...], now: int) -> None:
        """Take messages from the worker that holds them. Their tokens stay the same."""
        holder = self.workers.setdefault(HOLDER, Worker(HOLDER, now))
        for run in runs:
            held = []
            for offset, grant in self._current(worker, run, []):
                self._unlease(offset, grant)
                held.append(offset)
            if held:
                self._hold(holder, run[0], NEVER_ENDS, held)

    def end_hold(self, runs: tuple[Run, ...], now: int, *, accept: bool) -> None:
        """Settle held messages, or deliver them again after their backoff.

        Messages are not held any more if a seek has moved the subscription since.
        """
        for run in runs:
            for offset, grant in self._current(HOLDER, run, []):
                if accept:
                    self._unlease(offset, grant)
                    self.close(offset)
                else:
                    self._put_back(offset, grant, now, BY_BACKOFF, Death(EXHAUSTED))
        holder = self.workers.get(HOLDER)
        if holder is not None and not holder.held:
            del self.workers[HOLDER]

    def _renew(self, worker: str, run: Run, now: int, stale: list[tuple[int, int]]) -> None:
        renewed = []
        for offset, grant in self._current(worker, run, stale):
            self._unlease(offset, grant)
            renewed.append(offset)
        if renewed:
            until = now + self.settings.lease_us
            self._hold(self.workers[worker], run[0], until, renewed)

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
        self._wait(offset, now + (backoff(self.settings, count) if delay == BY_BACKOFF else delay))

    def _wait(self, offset: int, due: int) -> None:
        self.open[offset] = WAITING
        self._retries.add(offset, due)

    def _die(self, offset: int, death: Death) -> None:
        self.open[offset] = DEAD
        self.dead[offset] = death

    def close(self, offset: int) -> None:
        """Forget a settled message, which has no lease. The next message with its key may go."""
        del self.open[offset]
        self.counts.pop(offset, None)
        self._retries.remove(offset)
        self.dead.pop(offset, None)
        head = self._lines.remove(offset)
        if head is not None and self.open[head] is BLOCKED:
            self._wait(head, 0)

    def _forget_before(self, first: int) -> None:
        """Close messages that the topic has dropped unread. Leased ones stay with their worker."""
        self.next = max(self.next, first)
        for offset in [each for each in self._order if each < first]:
            if type(self.open.get(offset)) is Condition:
                self.close(offset)

    # -- the clock --

    def shift(self, by: int) -> None:
        """Move all deadlines, because the clock was corrected. 0 stays: it means at once."""
        self._retries.shift(by)
        workers = [each for each in self.workers.values() if each.name != HOLDER]
        grants = [grant for worker in workers for grant in worker.grants]
        for grant in grants:
            grant.until += by
        self._ending = Endings(grants)
        for worker in self.workers.values():
            worker.used += by

    # -- snapshots --

    def messages(self) -> Iterator[Held]:
        """Yield the open messages, lowest offset first."""
        for offset in self._order:
            found = self.open.get(offset)
            if found is None:
                continue
            count, key = self.deliveries(offset), self._lines.key(offset)
            if isinstance(found, Grant):
                yield Held(offset, count, -1, found.until, found.token, found.worker, key, None)
            else:
                due, death = self._retries.due(offset), self.dead.get(offset)
                yield Held(offset, count, int(found), due, 0, "", key, death)

    def restore(self, messages: Iterable[Held]) -> None:
        """Add the messages of a snapshot. The workers must exist."""
        grants: dict[tuple[int, int, str], list[int]] = {}
        for each in messages:
            offset = each.offset
            self._order.append(offset)
            if each.deliveries != 1:
                self.counts[offset] = each.deliveries
            if each.key:
                self._lines.add(offset, each.key)
            if each.condition < 0:
                grants.setdefault((each.token, each.time, each.worker), []).append(offset)
            elif each.condition == WAITING:
                self._wait(offset, each.time)
            elif each.condition == DEAD:
                self._die(offset, each.death or Death(REJECTED))
            else:
                self.open[offset] = BLOCKED
        for (token, until, worker), offsets in grants.items():
            self._hold(self.workers[worker], token, until, offsets)


def backoff(settings: Shared, count: int) -> int:
    """Return the delay after `count` deliveries."""
    return min(settings.backoff_min_us << min(max(count, 1) - 1, 62), settings.backoff_max_us)


def is_stuck(queue: Queue, expiry: Expiry | None) -> bool:
    """Return whether leases and expiry must wait until dead letters are written."""
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
