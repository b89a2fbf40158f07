"""What will happen, in order of time; of two things at the same time the older comes first.

Events are dropped into buckets of a millisecond and a bucket is sorted when its time has come: with
thousands of nodes that is twice as fast as one large heap, and just as exact. The sort is stable, so
the order in which events were put on the agenda decides between equals.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any

Action = Callable[[Any, Any], None]
Event = tuple[float, Action, Any, Any]  # when, what, and its two arguments

BUCKETS_PER_SECOND = 1000.0
BY_TIME = itemgetter(0)


class Agenda:
    def __init__(self) -> None:
        self.now = 0.0
        self.done = 0  # events worked off so far
        self._buckets: dict[int, list[Event]] = {}
        self._keys: list[int] = []  # a heap of the buckets' keys
        self._current = -1  # the bucket being worked off

    def at(self, time: float, action: Action, first: Any, second: Any) -> None:
        key = int(time * BUCKETS_PER_SECOND)
        try:
            bucket = self._buckets[key]
        except KeyError:
            bucket = self._buckets[key] = []
            heappush(self._keys, key)
        if key <= self._current:
            assert time >= self.now, "the past cannot be changed"
            insort(bucket, (time, action, first, second), key=BY_TIME)
        else:
            bucket.append((time, action, first, second))

    def run(self, until: float) -> None:
        """Work off everything up to and including `until`."""
        last = int(until * BUCKETS_PER_SECOND)
        keys, buckets = self._keys, self._buckets
        while keys and keys[0] < last:
            self._current = key = keys[0]
            bucket = buckets[key]
            bucket.sort(key=BY_TIME)
            for event in bucket:  # what is put into it meanwhile is sorted in behind us
                self.now, action, first, second = event
                action(first, second)
            self.done += len(bucket)
            del buckets[key]
            heappop(keys)
        if keys and keys[0] == last:
            self._run_partly(buckets[last], until)
        self._current = last  # part of it is over: what comes into it must be sorted in
        self.now = until

    def _run_partly(self, bucket: list[Event], until: float) -> None:
        """The last bucket: some of it may lie beyond `until`, and stays."""
        self._current = int(until * BUCKETS_PER_SECOND)
        bucket.sort(key=BY_TIME)
        done = 0
        for event in bucket:
            if event[0] > until:
                break
            self.now, action, first, second = event
            action(first, second)
            done += 1
        self.done += done
        del bucket[:done]

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))
