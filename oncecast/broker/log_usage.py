"""Decide when to take a snapshot or carry entries forward, based on log usage.

The machine knows which slots are needed, but not how many bytes lie between them. So about once per
MiB, a mark records the total log size at a slot.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

import msgspec

RECORD_BYTES = 64  # approximate overhead of an entry, on disk and in a replay
MARK_EVERY = 1 << 20


class Marks(msgspec.Struct, array_like=True):
    """The part of LogUsage that is saved in a snapshot."""

    total: int
    trimmed: int
    marks: list[tuple[int, int]]


class LogUsage:
    """The size of the log over time.

    `snapshot_bytes` limits the bytes to replay at startup, and the garbage between snapshots.
    """

    def __init__(self, snapshot_bytes: int) -> None:
        self.snapshot_bytes = snapshot_bytes
        self._total = 0  # bytes of all entries so far
        self._slots = array("Q")
        self._totals = array("Q")  # total bytes before each slot
        self._snapshot_total = 0
        self._state_bytes = 0
        self._trimmed = 0

    def add(self, slot: int, size: int) -> None:
        if not self._totals or self._total - self._totals[-1] >= min(
            MARK_EVERY, self.snapshot_bytes // 4
        ):
            self._slots.append(slot)
            self._totals.append(self._total)
        self._total += size + RECORD_BYTES

    def bytes_from(self, slot: int) -> int:
        """Return the approximate size of the log from `slot` on, in bytes."""
        at = bisect_left(self._slots, slot)
        return self._total - self._totals[at] if at < len(self._totals) else 0

    def slot_behind(self, slot: int, size: int) -> int:
        """Return the slot about `size` bytes after `slot`, or 0 if the log is not that long."""
        start = self._total - self.bytes_from(slot)
        at = bisect_left(self._totals, start + size)
        return self._slots[at] if at < len(self._slots) else 0

    def snapshot_due(self, needed: int) -> bool:
        """Return whether a snapshot would shorten the replay enough, or free enough disk space."""
        # Without the second term, a node with a large state would write the state as often as the
        # log itself.
        much = max(self.snapshot_bytes, 2 * self._state_bytes)
        if self._total - self._snapshot_total >= much:
            return True
        garbage = self.bytes_from(self._trimmed) - self.bytes_from(needed)
        return garbage >= self.snapshot_bytes

    def carry_due(self, needed: int, live_bytes: int) -> bool:
        """Return whether more than half of the log from `needed` on is garbage."""
        return self.bytes_from(needed) > 2 * live_bytes + self.snapshot_bytes

    def snapshot_taken(self, needed: int, size: int) -> None:
        self._snapshot_total, self._state_bytes, self._trimmed = self._total, size, needed
        at = max(0, bisect_left(self._slots, needed) - 1)
        del self._slots[:at]
        del self._totals[:at]

    def state(self, needed: int) -> bytes:
        marks = list(zip(self._slots, self._totals, strict=True))
        return msgspec.msgpack.encode(Marks(self._total, needed, marks))

    def restore(self, state: bytes, size: int) -> None:
        marks = msgspec.msgpack.decode(state, type=Marks)
        self._total = self._snapshot_total = marks.total
        self._trimmed, self._state_bytes = marks.trimmed, size
        self._slots = array("Q", [slot for slot, _ in marks.marks])
        self._totals = array("Q", [total for _, total in marks.marks])
