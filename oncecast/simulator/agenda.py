"""The queue of future events, ordered by time. Events at equal times keep their insertion order.

Events go into buckets of 4 ms, and each bucket is sorted when it is due. The sort is stable. With
thousands of nodes this is twice as fast as one heap, and the order is the same.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from heapq import heappop
from operator import itemgetter
from typing import Any

from oncecast.kernel.compiling import mypyc_attr
from oncecast.kernel.protocol import Moment
from oncecast.simulator.buckets import WIDTH, Action, Buckets, Event

BY_TIME = itemgetter(0)


@mypyc_attr(allow_interpreted_subclasses=True)
class Agenda(Moment):
    """The clock and event queue of a simulation."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[Any] = []  # effects of an action, which `settle` handles
        self.done = 0  # number of events processed so far
        self.buckets = Buckets()
        self._current: list[Event] = []  # the current bucket, sorted
        self._revise_until = -1.0  # the key of the last bucket to revise

    def at(self, time: float, action: Action, first: Any, second: Any) -> None:
        try:
            self.buckets[time // WIDTH].append((time, action, first, second))
        except KeyError:
            assert time >= self.now, "cannot schedule an event in the past"
            insort(self._current, (time, action, first, second), key=BY_TIME)

    def run(self, until: float) -> None:
        """Process all events up to and including `until`."""
        assert until >= self.now, "time cannot go backwards"
        last = until // WIDTH
        buckets, keys, left = self.buckets, self.buckets.keys_left, self.left
        self._finish(until)
        while keys and keys[0] <= last:
            buckets.until = heappop(keys)
            self._current = buckets.pop(buckets.until)
            if buckets.until <= self._revise_until:
                self.revise(self._current)
            self._current.sort(key=BY_TIME)
            if buckets.until < last:
                # New events for this bucket are inserted behind the event being processed.
                for self.now, action, first, second in self._current:  # noqa: B020
                    action(first, second)
                    if left:
                        self.settle(action)
                self.done += len(self._current)
                self._current = []
            else:
                self._finish(until)
        buckets.until = last
        self.now = until

    def _finish(self, until: float) -> None:
        """Process the current bucket up to `until` and keep the remaining events."""
        done = 0
        for time, action, first, second in self._current:
            if time > until:
                break
            self.now = time
            action(first, second)
            if self.left:
                self.settle(action)
            done += 1
        self.done += done
        del self._current[:done]

    def settle(self, action: Action) -> None:
        """Handle the effects that `action` left behind. The simulation overrides this method."""
        self.left.clear()

    def revise_all(self) -> None:
        """Revise all future events. Each bucket is revised once, when it is due."""
        self.revise(self._current)
        self._revise_until = self.buckets.last

    def revise(self, bucket: list[Event]) -> None:
        """Replace outdated actions and keep their times. The simulation overrides this method."""

    def to_come(self) -> Iterator[list[Event]]:
        yield self._current
        yield from self.buckets.values()

    def __len__(self) -> int:
        return sum(map(len, self.to_come()))
