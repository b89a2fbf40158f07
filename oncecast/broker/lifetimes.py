"""How long the batches of a topic may be delivered: a column of the batches with a time to live.

A lifetime counts from the time of its batch in the index. So it needs no correction of its own when
the replicated clock is corrected. It may be negative, for a delayed batch that was late.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

PRUNE_MIN = 64


class Lifetimes:
    """Pairs of the first offset of a batch and its lifetime, lowest offset first: 16 bytes each."""

    __slots__ = ("_offsets", "_spans")

    def __init__(self) -> None:
        self._offsets = array("Q")
        self._spans = array("q")

    def __bool__(self) -> bool:
        return bool(self._offsets)

    def add(self, offset: int, span: int, floor: int) -> None:
        """Add a batch. Forget batches before `floor` once there are many of them."""
        dropped = bisect_left(self._offsets, floor)
        if dropped > PRUNE_MIN and 2 * dropped > len(self._offsets):
            del self._offsets[:dropped], self._spans[:dropped]
        self._offsets.append(offset)
        self._spans.append(span)

    def of(self, offset: int) -> int | None:
        """Return the lifetime of the batch that begins at `offset`, or None if it has none."""
        at = bisect_left(self._offsets, offset)
        if at < len(self._offsets) and self._offsets[at] == offset:
            return self._spans[at]
        return None

    def rows(self, floor: int) -> Iterator[tuple[int, int]]:
        """Yield the pairs of batches from `floor` on."""
        at = bisect_left(self._offsets, floor)
        return zip(self._offsets[at:], self._spans[at:], strict=True)

    def restore(self, rows: tuple[tuple[int, int], ...]) -> None:
        for offset, span in rows:
            self._offsets.append(offset)
            self._spans.append(span)
