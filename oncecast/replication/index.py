"""The slot index maps each slot to the log record that holds its value.

Slots and records mostly advance together, so runs of both cover nearly all slots. Slots that were
voted on again or that filled a hole fall outside any run and are kept separately.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

Run = tuple[int, int, int]  # first slot, its record, and the number of slots


class SlotIndex:
    def __init__(self) -> None:
        self._slots: list[int] = []
        self._records: list[int] = []
        self._counts: list[int] = []
        self._apart: dict[int, int] = {}

    @property
    def end(self) -> int:
        """Return the first slot after all known slots."""
        return self._slots[-1] + self._counts[-1] if self._slots else 0

    def put(self, slot: int, record: int) -> None:
        end = self.end
        if slot < end:
            if self.get(slot) != record:
                self._apart[slot] = record
            return
        self._apart.pop(slot, None)
        if slot == end and record == self._records[-1] + self._counts[-1]:
            self._counts[-1] += 1
        else:
            self._slots.append(slot)
            self._records.append(record)
            self._counts.append(1)

    def get(self, slot: int) -> int | None:
        if slot in self._apart:
            return self._apart[slot]
        at = bisect_right(self._slots, slot) - 1
        if at < 0 or slot >= self._slots[at] + self._counts[at]:
            return None
        return self._records[at] + slot - self._slots[at]

    def lowest(self, slot: int) -> int | None:
        """Return the first record that holds `slot` or a later slot, or None."""
        found = [record for other, record in self._apart.items() if other >= slot]
        at = max(0, bisect_right(self._slots, slot) - 1)
        for first, record, count in list(self.runs())[at:]:
            if slot < first + count:
                found.append(record + max(0, slot - first))
        return min(found, default=None)

    def runs(self) -> Iterator[Run]:
        yield from zip(self._slots, self._records, self._counts, strict=True)

    def state(self) -> tuple[Run, ...]:
        """Return the whole index as runs. Separate slots come last, as runs of length one."""
        return (*self.runs(), *[(slot, record, 1) for slot, record in self._apart.items()])

    def restore(self, state: tuple[Run, ...]) -> None:
        self.__init__()  # type: ignore[misc]
        for slot, record, count in state:
            if slot >= self.end:
                self._slots.append(slot)
                self._records.append(record)
                self._counts.append(count)
            else:
                self._apart[slot] = record

    def trim(self, slot: int) -> None:
        """Drop the slots before `slot`."""
        at = max(0, bisect_right(self._slots, slot) - 1)
        if self._slots and self._slots[at] + self._counts[at] <= slot:
            at += 1
        del self._slots[:at], self._records[:at], self._counts[:at]
        if self._slots and self._slots[0] < slot:
            over = slot - self._slots[0]
            self._slots[0], self._records[0] = slot, self._records[0] + over
            self._counts[0] -= over
        for other in [other for other in self._apart if other < slot]:
            del self._apart[other]

    def cut(self, slot: int) -> None:
        """Drop `slot` and all later slots."""
        while self._slots and self._slots[-1] >= slot:
            for column in (self._slots, self._records, self._counts):
                column.pop()
        if self._slots:
            self._counts[-1] = min(self._counts[-1], slot - self._slots[-1])
        for other in [other for other in self._apart if other >= slot]:
            del self._apart[other]
