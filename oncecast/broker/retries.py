"""The messages of a shared subscription that wait for another delivery, by the time they are due.

A node may hold a million of them, so messages that are due at the same time share one integer.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

TIDY_MIN = 1000  # below this number, outdated entries are not searched for


class Retries:
    __slots__ = ("_due", "_heap", "_last")

    def __init__(self) -> None:
        self._due: dict[int, int] = {}  # when each message is due
        self._heap: list[tuple[int, int]] = []  # pairs of (due, offset); some are outdated
        self._last = 0  # the last value in `_due`

    def __len__(self) -> int:
        return len(self._due)

    def due(self, offset: int) -> int:
        """Return when a message is due, or 0 if it does not wait."""
        return self._due.get(offset, 0)

    def add(self, offset: int, due: int) -> None:
        if len(self._heap) > 2 * len(self._due) + TIDY_MIN:
            self._rebuild()
        if due == self._last:
            due = self._last
        self._due[offset] = self._last = due
        heappush(self._heap, (due, offset))

    def remove(self, offset: int) -> None:
        self._due.pop(offset, None)

    @property
    def next(self) -> tuple[int, int] | None:
        """Return when the first message is due, and its offset, or None."""
        heap = self._heap
        while heap and self._due.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0] if heap else None

    def ready(self, now: int) -> bool:
        """Return whether a message is due."""
        first = self.next
        return first is not None and first[0] <= now

    def pop(self) -> int:
        """Remove the first message, and return its offset."""
        first = self.next
        assert first is not None
        heappop(self._heap)
        del self._due[first[1]]
        return first[1]

    def shift(self, by: int) -> None:
        """Move all times. 0 stays: it means at once."""
        self._due = {each: max(due + by, 0) if due else 0 for each, due in self._due.items()}
        self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [(due, offset) for offset, due in self._due.items()]
        heapify(self._heap)
