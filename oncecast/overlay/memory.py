"""Message numbers and payloads in bounded memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from oncecast.overlay.events import NUMBER_MAX, MessageId

Range = tuple[int, int]  # first and last number, inclusive


class Numbers:
    """The known message numbers of one origin: 1 to `top`, except the `gaps`.

    Its size depends only on the number of gaps.
    """

    __slots__ = ("gaps", "top")

    def __init__(self, top: int = 0, gaps: Iterable[Range] = ()) -> None:
        self.top = top
        self.gaps = list(gaps)  # in ascending order, not adjacent, and all below `top`

    def __contains__(self, number: int) -> bool:
        return 1 <= number <= self.top and self._gap_at(number) is None

    @property
    def lowest_missing(self) -> int:
        return self.gaps[0][0] if self.gaps else self.top + 1

    @property
    def well_formed(self) -> bool:
        """Return whether numbers that a peer sent satisfy the invariants of this class."""
        end = -1
        for first, last in self.gaps:
            if not end + 1 < first <= last < self.top:
                return False
            end = last
        return 0 <= self.top <= NUMBER_MAX

    def add(self, number: int) -> bool:
        """Add a number. Return False if it was already known."""
        if number > self.top:
            if number > self.top + 1:
                self.gaps.append((self.top + 1, number - 1))
            self.top = number
            return True
        at = self._gap_at(number)
        if at is None:
            return False
        first, last = self.gaps[at]
        halves = (first, number - 1), (number + 1, last)
        self.gaps[at : at + 1] = [half for half in halves if half[0] <= half[1]]
        return True

    def add_all_to(self, number: int) -> None:
        """Add all numbers up to `number`."""
        self.gaps = [(max(first, number + 1), last) for first, last in self.gaps if last > number]
        self.top = max(self.top, number)

    def add_all_of(self, other: Numbers) -> None:
        """Add all numbers that `other` knows."""
        top = max(self.top, other.top)
        self.gaps = common(self.missing_to(top), other.missing_to(top))
        self.top = top

    def missing_to(self, number: int) -> list[Range]:
        """Return the unknown ranges up to `number`."""
        ranges = [(first, min(last, number)) for first, last in self.gaps if first <= number]
        return ranges if number <= self.top else [*ranges, (self.top + 1, number)]

    def lacks_of(self, other: Numbers) -> bool:
        """Return whether `other` knows a number that this object lacks."""
        return other.top > self.top or any(other._knows_within(gap) for gap in self.gaps)

    def _knows_within(self, wanted: Range) -> bool:
        first, last = wanted
        if first > self.top:
            return False
        at = self._gap_at(first)
        return at is None or self.gaps[at][1] < last

    def _gap_at(self, number: int) -> int | None:
        at = bisect_right(self.gaps, (number, NUMBER_MAX)) - 1
        return at if at >= 0 and number <= self.gaps[at][1] else None


def common(one: list[Range], other: list[Range]) -> list[Range]:
    """Return the intersection of two ascending lists of ranges."""
    found: list[Range] = []
    i = j = 0
    while i < len(one) and j < len(other):
        first, last = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if first <= last:
            found.append((first, last))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return found


class Payloads:
    """The newest payloads, limited by count and bytes. The newest payload always stays."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self.count_max, self.bytes_max = count_max, bytes_max
        self.by_id: dict[MessageId, bytes] = {}
        self.bytes = 0

    def add(self, key: MessageId, payload: bytes) -> list[MessageId]:
        """Keep a payload. Return the ids of the payloads that it evicts, oldest first."""
        if key in self.by_id:
            return []
        self.by_id[key] = payload
        self.bytes += len(payload)
        evicted: list[MessageId] = []
        while len(self.by_id) > 1 and self._over_limit():
            oldest = next(iter(self.by_id))
            self.bytes -= len(self.by_id.pop(oldest))
            evicted.append(oldest)
        return evicted

    def remove(self, key: MessageId) -> None:
        self.bytes -= len(self.by_id.pop(key, b""))

    def _over_limit(self) -> bool:
        return len(self.by_id) > self.count_max or self.bytes > self.bytes_max
