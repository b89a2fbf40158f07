"""The delayed messages of a topic: batches in the log that its index does not contain yet (WRK-5).

A delayed batch enters the index when it is due, and gets its offsets then. Until then it has a
number, which counts the delayed batches of its topic.

A delay counts from the time of the put. If the replicated clock is corrected, this time is
corrected like the time of any other batch. A fixed due time is never corrected.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from oncecast.broker.clock import Retiming

# The fields of a delayed batch in a snapshot: number, slot, count, size, skip, time, delay, due
# time, and time to live.
Fields = tuple[int, int, int, int, int, int, int, int, int]


class Delayed:
    """A delayed batch, without its first `skip` messages. `time` is when it was put."""

    __slots__ = ("count", "delay", "fixed", "size", "skip", "slot", "time", "ttl")

    def __init__(
        self,
        slot: int,
        count: int,
        size: int,
        skip: int,
        time: int,
        delay: int,
        fixed: int,
        ttl: int,
    ) -> None:
        self.slot, self.count, self.size, self.skip = slot, count, size, skip
        self.time, self.delay, self.fixed, self.ttl = time, delay, fixed, ttl

    @property
    def due(self) -> int:
        return self.fixed or self.time + self.delay


class Delays:
    __slots__ = ("_order", "batches", "last", "messages", "size")

    def __init__(self) -> None:
        self.batches: dict[int, Delayed] = {}  # by number
        self.last = 0  # number of the last batch
        self.messages = self.size = 0  # totals over all batches
        self._order: list[tuple[int, int]] = []  # a heap of (due, number)

    @property
    def due(self) -> int | None:
        """Return when the next batch is due, or None without a batch."""
        return self._order[0][0] if self._order else None

    def add(self, batch: Delayed) -> None:
        self.last += 1
        self._put(self.last, batch)

    def _put(self, number: int, batch: Delayed) -> None:
        self.batches[number] = batch
        self.messages += batch.count
        self.size += batch.size
        heappush(self._order, (batch.due, number))

    def take(self, now: int, most: int) -> Iterator[Delayed]:
        """Remove and yield up to `most` batches that are due. The order is that of their times."""
        while most > 0 and self._order and self._order[0][0] <= now:
            batch = self.batches.pop(heappop(self._order)[1])
            self.messages -= batch.count
            self.size -= batch.size
            most -= 1
            yield batch

    def move(self, number: int, old: int, new: int) -> bool:
        """Move a batch from slot `old` to `new`. Return False if it is not in `old`."""
        batch = self.batches.get(number)
        if batch is None or batch.slot != old:
            return False
        batch.slot = new
        return True

    def clear(self) -> list[int]:
        """Drop all batches, and return their slots."""
        slots = [batch.slot for batch in self.batches.values()]
        self.batches.clear()
        self._order.clear()
        self.messages = self.size = 0
        return slots

    # -- the clock --

    def retime(self, retiming: Retiming) -> None:
        for batch in self.batches.values():
            if batch.time > retiming.above:
                batch.time = retiming.rule(batch.time)
        self._sort()

    def shift(self, by: int) -> None:
        """Move the times of all puts, because another group's clock decides from now on."""
        for batch in self.batches.values():
            batch.time = max(batch.time + by, 0)
        self._sort()

    def _sort(self) -> None:
        self._order = [(batch.due, number) for number, batch in self.batches.items()]
        heapify(self._order)

    # -- snapshots --

    def rows(self) -> Iterator[Fields]:
        for number, each in self.batches.items():
            put = (each.slot, each.count, each.size, each.skip, each.time)
            yield (number, *put, each.delay, each.fixed, each.ttl)

    def restore(self, rows: tuple[Fields, ...]) -> None:
        for number, *fields in rows:
            self._put(number, Delayed(*fields))


def position(number: int) -> int:
    """Return the offset that stands for a delayed batch in a `Carry`. It is below -1."""
    return -1 - number


def number_at(offset: int) -> int:
    """Return the number of the delayed batch that an offset below -1 stands for."""
    return -1 - offset
