"""The log slots that are still needed. The log can be truncated before the lowest one.

Each command with messages has its own slot, and slot numbers increase, so the slots form a sorted
column. A transaction has its slot once for each topic with messages in it. One more byte per slot
marks it as live or dead. Beyond `COMPACT_MIN` slots, at most half of them are dead.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import compress

COMPACT_MIN = 1024


class LiveSlots:
    __slots__ = ("_alive", "_dead", "_head", "_slots")

    def __init__(self) -> None:
        self._slots = array("Q")
        self._alive = bytearray()
        self._head = 0  # index of the first live slot
        self._dead = 0

    def __len__(self) -> int:
        return len(self._slots) - self._dead

    def add(self, slot: int) -> None:
        self._slots.append(slot)
        self._alive.append(1)

    def drop(self, slot: int) -> None:
        slots, alive, head = self._slots, self._alive, self._head
        at = head if slots[head] == slot else bisect_left(slots, slot, head)
        while not alive[at] and at + 1 < len(alive):
            at += 1  # a transaction's slot appears once for each of its topics
        assert slots[at] == slot, f"slot {slot} was never added, or was dropped too often"
        alive[at] = 0
        self._dead += 1
        if at == head:
            found = alive.find(1, head)
            self._head = len(alive) if found < 0 else found
        if self._dead * 2 > len(alive) > COMPACT_MIN:
            self._compact()

    def lowest(self) -> int | None:
        return self._slots[self._head] if self._head < len(self._slots) else None

    def below(self, slot: int) -> int:
        """Return the number of live slots before `slot`."""
        return self._alive.count(1, self._head, bisect_left(self._slots, slot, self._head))

    def column(self) -> array[int]:
        """Return the live slots, lowest first."""
        if self._dead:
            self._compact()
        return self._slots

    def extend(self, column: array[int]) -> None:
        self._slots.extend(column)
        self._alive.extend(b"\1" * len(column))

    def _compact(self) -> None:
        self._slots = array("Q", compress(self._slots, self._alive))
        self._alive = bytearray(b"\1") * len(self._slots)
        self._head = self._dead = 0
