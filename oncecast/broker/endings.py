"""The grants of a shared subscription, by the end of their lease.

A node may hold a million grants, so they are stored compactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

KEPT_MIN = 64  # below this number, settled grants are not searched for


class Grant:
    """Offsets that a worker holds under one token. Some of them may be settled already."""

    __slots__ = ("_offsets", "left", "token", "until", "worker")

    def __init__(self, worker: str, token: int, until: int, offsets: list[int]) -> None:
        self.worker, self.token, self.until = worker, token, until
        self.left = len(offsets)  # number of offsets that are still leased
        # A list would need 64 bytes more.
        self._offsets = offsets[0] if len(offsets) == 1 else offsets

    @property
    def offsets(self) -> list[int]:
        return [self._offsets] if isinstance(self._offsets, int) else self._offsets


class Endings:
    """Grants by the end of their lease.

    Grants are added in this order, unless the lease of the subscription was shortened. So most of
    them are in a queue, which needs less memory than a heap. Grants that end earlier are in a heap.

    Settled grants are dropped when they are the first to end, or when they are half of all. So a
    job that takes long does not keep the grants of all later jobs in memory.
    """

    __slots__ = ("_early", "_limit", "_number", "_queue")

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self._queue: deque[Grant] = deque(sorted(grants, key=lambda grant: grant.until))
        self._early: list[tuple[int, int, Grant]] = []  # a heap by end
        self._number = 0  # number of grants that were added to the heap
        self._limit = max(2 * len(self), KEPT_MIN)

    def __len__(self) -> int:
        return len(self._queue) + len(self._early)

    def add(self, grant: Grant) -> None:
        if len(self) >= self._limit:
            self._drop_settled()
        if not self._queue or self._queue[-1].until <= grant.until:
            self._queue.append(grant)
        else:
            self._number += 1
            heappush(self._early, (grant.until, self._number, grant))

    def _drop_settled(self) -> None:
        self._queue = deque([grant for grant in self._queue if grant.left])
        self._early = [each for each in self._early if each[2].left]
        heapify(self._early)
        self._limit = max(2 * len(self), KEPT_MIN)

    @property
    def next(self) -> int | None:
        """Return when the first lease ends, or None without a lease."""
        while self._queue and not self._queue[0].left:
            self._queue.popleft()
        while self._early and not self._early[0][2].left:
            heappop(self._early)
        if not self._early:
            return self._queue[0].until if self._queue else None
        early = self._early[0][0]
        return min(early, self._queue[0].until) if self._queue else early

    def ended(self, now: int) -> Iterator[Grant]:
        """Remove and yield the grants that have ended."""
        while self._queue and self._queue[0].until <= now:
            yield self._queue.popleft()
        while self._early and self._early[0][0] <= now:
            yield heappop(self._early)[2]
