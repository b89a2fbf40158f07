"""The cache of a keep-all writer, with runs of values that it may have to send again.

A run is one message as it was first sent. The cache keeps and drops whole runs, so it does no work
per value.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from math import inf

import msgspec

from oncecast.streams.protocols.events import Data
from oncecast.streams.protocols.policies import QoS


class Runs:
    def __init__(self, qos: QoS) -> None:
        self.qos = qos
        self._runs: deque[tuple[float, Data]] = deque()  # runs, each with its expiry time
        self._count = 0
        self._keys: dict[bytes, int] = {}  # number of runs with this key
        self._next = 1

    def __len__(self) -> int:
        return self._count

    @property
    def key_count(self) -> int:
        return len(self._keys)

    @property
    def first(self) -> int:
        """Return the lowest kept number, or the next number if the cache is empty."""
        return self._runs[0][1].since if self._runs else self._next

    def fits(self, keys: Sequence[bytes], count: int = 1) -> bool:
        if self._count + count > self.qos.samples_max:
            return False
        new = [key for key in dict.fromkeys(keys) if key not in self._keys]
        return not new or len(self._keys) + len(new) <= self.qos.keys_max

    def add(self, data: Data, until: float = inf) -> None:
        """Add a run. The caller has checked that it fits."""
        self._runs.append((until, data))
        self._count += len(data.values)
        for key in dict.fromkeys(data.keys):
            self._keys[key] = self._keys.get(key, 0) + 1
        self._next = data.last + 1

    def skip(self, data: Data) -> None:
        """Advance past a run that is not kept."""
        self._next = data.last + 1

    def drop_before(self, end: int) -> None:
        """Drop the runs that end before this number."""
        while self._runs and self._runs[0][1].last < end:
            self._drop()

    def expire(self, now: float) -> None:
        """Drop the runs whose lifespan has expired."""
        while self._runs and self._runs[0][0] < now:
            self._drop()

    def _drop(self) -> None:
        _, data = self._runs.popleft()
        self._count -= len(data.values)
        for key in dict.fromkeys(data.keys):
            self._keys[key] -= 1
            if not self._keys[key]:
                del self._keys[key]

    def messages(self, since: int, last: int) -> Iterator[Data]:
        """Yield the kept values with these numbers, in their original messages if possible."""
        for _, data in self._runs:
            if data.last >= since:
                if data.since > last:
                    return
                whole = since <= data.since and data.last <= last
                yield data if whole else part(data, since, last)


def part(data: Data, since: int, last: int) -> Data:
    """Return a message with only the values from `since` to `last`."""
    first = max(since, data.since)
    wanted = slice(first - data.since, last + 1 - data.since)
    return msgspec.structs.replace(
        data,
        since=first,
        last=min(last, data.last),
        numbers=(first,),
        keys=data.keys if len(data.keys) == 1 else data.keys[wanted],
        values=data.values[wanted],
    )
