"""Which messages a query reads next, and how they are shared out among tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Position(NamedTuple):
    """The next offset to be read of a topic, in one of its lives."""

    life: int
    next: int


class Range(NamedTuple):
    topic: str
    life: int
    first: int
    until: int

    @property
    def rows(self) -> int:
        return self.until - self.first


Positions = Mapping[str, Position]


def between(start: Positions, end: Positions) -> list[Range]:
    """What lies between two positions of the same topics, in the same lives."""
    ranges = (
        Range(topic, life, start[topic].next, until) for topic, (life, until) in sorted(end.items())
    )
    return [each for each in ranges if each.rows > 0]


def limited(start: Positions, end: Positions, rows_max: int) -> dict[str, Position]:
    """As far towards `end` as so many messages reach; each topic gets its share of the backlog."""
    ranges = between(start, end)
    total = sum(each.rows for each in ranges)
    if total <= rows_max:
        return dict(end)
    reached = {each.topic: Position(each.life, each.first) for each in ranges}
    left = rows_max
    for each in ranges:
        share = min(each.rows * rows_max // total, left)
        reached[each.topic] = Position(each.life, each.first + share)
        left -= share
    for each in ranges:  # what is lost by rounding goes to the first that can take it
        more = min(each.until - reached[each.topic].next, left)
        reached[each.topic] = Position(each.life, reached[each.topic].next + more)
        left -= more
    return dict(end) | reached


def split(ranges: list[Range], partitions_min: int, rows_max: int) -> Iterator[Range]:
    """Pieces of about equal size, in order: at least so many, none with more messages."""
    total = sum(each.rows for each in ranges)
    for each in ranges:
        rows, first = each.rows, each.first
        pieces = min(rows, max(up(rows * partitions_min, total), up(rows, rows_max)))
        for piece in range(pieces):
            begin, end = rows * piece // pieces, rows * (piece + 1) // pieces
            yield each._replace(first=first + begin, until=first + end)


def up(one: int, other: int) -> int:
    """One divided by the other, rounded up."""
    return -(-one // other)
