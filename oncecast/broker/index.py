"""The index of a topic: the log slots that hold its messages, not the messages themselves.

An entry is a batch, or the rest of a batch that was partly stored before. Each entry is a row in
four columns, 32 bytes in all. `_head` advances as messages are dropped. Two rare kinds of entry
also have a note: batches whose first messages are skipped, and staged batches, whose command does
not contain a sequence number. Batches with a time to live have an entry in `lifetimes`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from oncecast.broker.clock import Retiming
from oncecast.broker.extent import Extent
from oncecast.broker.lifetimes import Lifetimes
from oncecast.broker.live_slots import LiveSlots
from oncecast.wire.retention import Policy

COMPACT_MIN = 64
PLAIN = (0, -1)  # no message is skipped, and the command contains the sequence number


class Entry(NamedTuple):
    """A row of an index, as exported to another group."""

    offset: int
    messages: int
    size: int
    time: int
    skip: int
    sequence: int
    slot: int


class Index:
    """The messages from `first` up to but excluding `next`. Earlier messages were dropped."""

    __slots__ = (
        "_base",
        "_ends",
        "_head",
        "_live_slots",
        "_notes",
        "_offsets",
        "_ordered",
        "_slots",
        "_times",
        "first",
        "lifetimes",
        "next",
    )

    def __init__(self, live_slots: LiveSlots) -> None:
        self.first = self.next = 0
        self._live_slots = live_slots
        self._offsets = array("Q")  # first offset of each entry
        self._slots = array("Q")
        self._times = array("Q")  # append time by the replicated clock; never decreases
        self._ends = array("Q")  # total bytes up to and including this entry
        self._notes: dict[int, tuple[int, int]] = {}  # skip and sequence, by offset
        self.lifetimes = Lifetimes()
        self._head = 0
        self._base = 0  # total bytes of the entries before the head
        self._ordered = True  # whether slots increase from entry to entry

    @property
    def size(self) -> int:
        """Return the total size of all batches that are at least partly kept."""
        return self._total - self._base

    @property
    def newest_batch(self) -> int:
        """Return the first offset of the last batch."""
        return self._offsets[-1] if self.batches else self.next

    @property
    def batches(self) -> int:
        return len(self._slots) - self._head

    def append(
        self, slot: int, count: int, size: int, time: int, note: tuple[int, int] = PLAIN
    ) -> int:
        """Append `count` messages, and return the offset of the first."""
        offset = self.next
        if note != PLAIN:
            self._notes[offset] = note
        if self._ordered and self._slots and slot < self._slots[-1]:
            self._ordered = False
        self._ends.append((self._ends[-1] if self._ends else self._base) + size)
        self._offsets.append(offset)
        self._slots.append(slot)
        self._times.append(max(time, self._times[-1]) if self._times else time)
        self.next = offset + count
        return offset

    def expire_last(self, at: int) -> None:
        """Let the last batch expire at the time `at`."""
        self.lifetimes.add(self._offsets[-1], at - self._times[-1], self._floor)

    def expired(self, offset: int, now: int) -> int:
        """Return how many messages from `offset` to the end of its batch have expired."""
        if offset < self.first:
            return 0  # dropped
        at = self._entry(offset)
        span = self.lifetimes.of(self._offsets[at])
        if span is None or self._times[at] + span > now:
            return 0
        return self._end(at) - offset

    def batch_end(self, offset: int) -> int:
        """Return the end of the batch that contains `offset`."""
        return self._end(self._entry(offset))

    def drop_below(self, offset: int) -> None:
        """Drop the messages before `offset`, and any batches that become empty."""
        self.first = offset
        head = self._head
        if head + 1 < len(self._offsets) and offset < self._offsets[head + 1]:
            return
        stop = len(self._slots) if offset >= self.next else self._entry(offset)
        if stop <= head:
            return
        for slot in self._slots[head:stop]:
            self._live_slots.drop(slot)
        self._base = self._ends[stop - 1]
        self._head = stop
        if stop * 2 > len(self._slots) and (stop > COMPACT_MIN or stop == len(self._slots)):
            self._compact()

    def extents(self, offset: int, messages_max: int, bytes_max: int) -> Iterator[Extent]:
        """Yield the extents starting at `offset`, in order. The first may exceed `bytes_max`."""
        offset = max(offset, self.first)
        if offset >= self.next:
            return
        at = self._entry(offset)
        start = self._ends[at - 1] if at > self._head else self._base
        while messages_max > 0 and at < len(self._slots):
            extent = self._extent(at, offset, messages_max)
            yield extent
            offset += extent.count
            messages_max -= extent.count
            at += 1
            if at < len(self._ends) and self._ends[at] - start > bytes_max:
                return

    def ends(self, extent: Extent) -> bool:
        """Return whether the extent reaches the end of its batch."""
        end = extent.offset + extent.count
        return end >= self.next or self._offsets[self._entry(end)] == end

    def since(self, time: int) -> int:
        """Return the first kept offset of a batch appended at `time` or later, else `next`."""
        at = bisect_left(self._times, time, self._head)
        return max(self._offsets[at], self.first) if at < len(self._times) else self.next

    def appended(self, offset: int) -> int:
        """Return when the message at `offset` was appended, or 0 if it is not kept."""
        return self._times[self._entry(offset)] if self.first <= offset < self.next else 0

    def newest(self, size: int) -> int:
        """Return the first offset of the newest batches that total at most `size` bytes."""
        if self.size <= size:
            return self.first
        at = bisect_left(self._ends, self._total - size, self._head) + 1
        return self._offsets[at] if at < len(self._offsets) else self.next

    def floor(self, policy: Policy, trusted: int) -> int:
        """Return the lowest offset that `policy` retains at the time `trusted`."""
        if not policy.age_us and not policy.bytes_max:
            return self.first if policy.keep_all else self.next
        floor = self.first
        if policy.age_us:
            floor = max(floor, self.since(trusted - policy.age_us + 1))
        if policy.bytes_max:
            floor = max(floor, self.newest(policy.bytes_max))
        return floor

    def before(self, slot: int) -> Iterator[Extent]:
        """Yield an extent for each whole entry in a slot before `slot`."""
        stop = len(self._slots)
        if self._ordered:
            stop = bisect_left(self._slots, slot, self._head)
        for at in range(self._head, stop):
            if self._slots[at] < slot:
                yield self._extent(at, self._offsets[at], self.next)

    def move(self, offset: int, old: int, new: int) -> bool:
        """Move the entry at `offset` from slot `old` to `new`.

        Return False if there is no such entry, or if it is in another slot.
        """
        at = bisect_left(self._offsets, offset, self._head) if offset >= 0 else len(self._offsets)
        if at == len(self._offsets) or self._offsets[at] != offset or self._slots[at] != old:
            return False
        self._slots[at] = new
        self._ordered = self.batches == 1
        return True

    def retime(self, retiming: Retiming) -> None:
        for at in range(bisect_right(self._times, retiming.above), len(self._times)):
            self._times[at] = retiming.rule(self._times[at])

    def clear(self) -> None:
        self.drop_below(self.next)

    def begin_at(self, offset: int) -> None:
        """Drop everything and continue at `offset`."""
        self.clear()
        self.first = self.next = offset

    def entries(self, offset: int) -> Iterator[Entry]:
        """Yield the whole entries, starting with the entry that contains `offset`."""
        if self.batches and offset < self.next:
            for at in range(self._entry(max(offset, self.first)), len(self._slots)):
                yield self._whole(at)

    def _whole(self, at: int) -> Entry:
        first, end = self._offsets[at], self._ends[at]
        after = self._end(at)
        before = self._ends[at - 1] if at > self._head else self._base
        note = self._notes.get(first, PLAIN)
        return Entry(first, after - first, end - before, self._times[at], *note, self._slots[at])

    @property
    def _total(self) -> int:
        return self._ends[-1] if self._ends else self._base

    def _entry(self, offset: int) -> int:
        """Return the row of the entry that contains `offset`."""
        return bisect_right(self._offsets, offset, self._head) - 1

    def _end(self, at: int) -> int:
        """Return the offset after the last message of the entry in row `at`."""
        return self._offsets[at + 1] if at + 1 < len(self._offsets) else self.next

    def _extent(self, at: int, offset: int, messages_max: int) -> Extent:
        first = self._offsets[at]
        end = self._offsets[at + 1] if at + 1 < len(self._offsets) else self.next
        skip, sequence = self._notes.get(first, PLAIN)
        inside = offset - first
        return Extent(
            self._slots[at],
            skip + inside,
            min(end - offset, messages_max),
            offset,
            sequence + inside if sequence >= 0 else -1,
        )

    def _compact(self) -> None:
        for column in self._columns:
            del column[: self._head]
        self._head = 0
        self._ordered = self._ordered or not self._slots
        if self._notes:
            self._notes = dict(self._living_notes())

    @property
    def _floor(self) -> int:
        """Return the first offset of the first entry."""
        return self._offsets[self._head] if self.batches else self.next

    def _living_notes(self) -> Iterator[tuple[int, tuple[int, int]]]:
        floor = self._floor
        return ((offset, note) for offset, note in self._notes.items() if offset >= floor)

    @property
    def _columns(self) -> tuple[array[int], ...]:
        return self._offsets, self._slots, self._times, self._ends

    # Snapshots.

    def summary(self) -> tuple[int, int, int, bool]:
        return self.first, self.next, self._base, self._ordered

    def notes(self) -> tuple[tuple[int, int, int], ...]:
        return tuple((offset, skip, sequence) for offset, (skip, sequence) in self._living_notes())

    def living_lifetimes(self) -> Iterator[tuple[int, int]]:
        return self.lifetimes.rows(self._floor)

    def rows(self, rows_max: int) -> Iterator[tuple[array[int], ...]]:
        for at in range(self._head, len(self._slots), rows_max):
            yield tuple(column[at : at + rows_max] for column in self._columns)

    def restore(
        self, summary: tuple[int, int, int, bool], notes: tuple[tuple[int, int, int], ...]
    ) -> None:
        self.first, self.next, self._base, self._ordered = summary
        self._notes = {offset: (skip, sequence) for offset, skip, sequence in notes}

    def restore_rows(self, columns: tuple[array[int], ...]) -> None:
        for mine, more in zip(self._columns, columns, strict=True):
            mine.extend(more)
