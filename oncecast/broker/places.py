"""Which places of the log are still needed: what decides how far the log can be cut off.

Every command that carries messages lies at a place of its own, and new ones lie higher. So the
places are a sorted column, with a byte each for alive or dead; at worst half of them are dead.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import compress

COMPACT_MIN = 1024


class Places:
    __slots__ = ("_alive", "_dead", "_head", "_places")

    def __init__(self) -> None:
        self._places = array("Q")
        self._alive = bytearray()
        self._head = 0  # all before it are dead
        self._dead = 0

    def __len__(self) -> int:
        return len(self._places) - self._dead

    def add(self, place: int) -> None:
        self._places.append(place)
        self._alive.append(1)

    def drop(self, place: int) -> None:
        places, alive, head = self._places, self._alive, self._head
        at = head if places[head] == place else bisect_left(places, place, head)
        assert places[at] == place, f"place {place} was never added"
        assert alive[at], f"place {place} is dropped twice"
        alive[at] = 0
        self._dead += 1
        if at == head:
            found = alive.find(1, head)
            self._head = len(alive) if found < 0 else found
        if self._dead * 2 > len(alive) > COMPACT_MIN:
            self._compact()

    def lowest(self) -> int | None:
        return self._places[self._head] if self._head < len(self._places) else None

    def below(self, place: int) -> int:
        """How many are alive before `place`."""
        return self._alive.count(1, self._head, bisect_left(self._places, place, self._head))

    def column(self) -> array[int]:
        """The living, lowest first."""
        if self._dead:
            self._compact()
        return self._places

    def extend(self, column: array[int]) -> None:
        self._places.extend(column)
        self._alive.extend(b"\1" * len(column))

    def _compact(self) -> None:
        self._places = array("Q", compress(self._places, self._alive))
        self._alive = bytearray(b"\1") * len(self._places)
        self._head = self._dead = 0
