"""Future events of a simulation, sorted roughly by time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import Any

Action = Callable[[Any, Any], None]


Event = tuple[float, Action, Any, Any]  # time, function, and its two arguments


WIDTH = 1 / 256  # seconds per bucket


class Buckets(dict[float, list[Event]]):
    """The unsorted future buckets. A lookup creates a missing bucket, unless it is already due."""

    def __init__(self) -> None:
        self.keys_left: list[float] = []  # a heap
        self.until = -1.0  # the key of the current bucket
        self.last = -1.0  # the highest key so far

    def __missing__(self, key: float) -> list[Event]:
        if key <= self.until:
            raise KeyError(key)
        heappush(self.keys_left, key)
        if key > self.last:
            self.last = key
        bucket = self[key] = []
        return bucket
