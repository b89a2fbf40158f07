"""Schedules a stack's wake-up calls with a single event loop timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

from oncecast.kernel.values import Wake

EARLY = 0.001  # seconds; a uvloop timer may fire up to a millisecond early


class Wakes:
    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[Wake], None]) -> None:
        self._loop, self._wake = loop, wake
        self._heap: list[tuple[float, int, Wake]] = []
        self._made = 0  # counts the calls, to keep calls with equal times in order
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def add(self, wake: Wake) -> None:
        self._made += 1
        heappush(self._heap, (wake.at, self._made, wake))
        self._set_timer()

    def stop(self) -> None:
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _due(self) -> None:
        self._timer = None
        now = self._loop.time() + EARLY
        while self._heap and self._heap[0][0] <= now:
            _, _, wake = heappop(self._heap)
            self._wake(wake)
        self._set_timer()

    def _set_timer(self) -> None:
        if not self._heap:
            return
        at = self._heap[0][0]
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(at, self._due), at
