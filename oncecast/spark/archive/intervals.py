"""The offsets that a table holds, as sorted intervals. This module is pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Interval = tuple[int, int]  # the first offset, and the offset after the last


def merged(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return the same offsets in as few intervals as possible."""
    found: list[Interval] = []
    for first, until in sorted(intervals):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], until)
        elif first < until:
            found.append((first, until))
    return tuple(found)


def missing(wanted: Interval, held: Iterable[Interval]) -> Iterator[Interval]:
    """Yield the parts of `wanted` that are in none of the sorted intervals."""
    at, end = wanted
    for first, until in held:
        if at < min(first, end):
            yield at, min(first, end)
        at = max(at, until)
    if at < end:
        yield at, end
