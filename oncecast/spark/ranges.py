"""Which messages a query reads next, and how they are shared out among tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

PIECE_BYTES = 128 << 20  # for one task, as of files that Spark reads
PIECE_BYTES_MIN = 4 << 20  # fewer are not worth a task of their own


class Position(NamedTuple):
    """The next offset to be read of a topic, in one of its lives, and where the query began it.

    Spark writes down the end of a micro-batch before it reads, but nowhere the start of the first:
    a query that dies in it would begin somewhere else if its end did not say where that was.
    """

    life: int
    begin: int
    next: int


class Range(NamedTuple):
    topic: str
    life: int
    first: int
    until: int
    size: int = 1  # bytes of a message, about

    @property
    def rows(self) -> int:
        return self.until - self.first

    @property
    def bytes(self) -> int:
        return self.rows * self.size


Positions = Mapping[str, Position]


def between(start: Positions, end: Positions) -> list[Range]:
    """What is to be read of each topic of `end`."""
    ranges = (
        Range(topic, at.life, resumed(start.get(topic), at), at.next)
        for topic, at in sorted(end.items())
    )
    return [each for each in ranges if each.rows > 0]


def resumed(start: Position | None, end: Position) -> int:
    """Where reading towards `end` goes on: at the start, if both are of the same beginning."""
    if start is None or start[:2] != end[:2]:
        return end.begin
    return start.next


def limited(start: Positions, end: Positions, rows_max: int) -> dict[str, Position]:
    """As far towards `end` as so many messages reach; each topic gets its share of the backlog."""
    ranges = between(start, end)
    total = sum(each.rows for each in ranges)
    if total <= rows_max:
        return dict(end)
    reached = dict(end)
    left = rows_max
    for each in ranges:
        share = min(each.rows * rows_max // total, left)
        reached[each.topic] = end[each.topic]._replace(next=each.first + share)
        left -= share
    for each in ranges:  # what is lost by rounding goes to the first that can take it
        at = reached[each.topic]
        more = min(each.until - at.next, left)
        reached[each.topic] = at._replace(next=at.next + more)
        left -= more
    return reached


def enough(ranges: list[Range], cores: int) -> int:
    """As many pieces as suit so many cores: each has a start that costs as much as thousands of
    messages, and at the end all should be busy."""
    total = sum(each.bytes for each in ranges)
    whole = up(up(total, PIECE_BYTES), cores) * cores
    return min(whole, max(1, up(total, PIECE_BYTES_MIN)))


def split(ranges: list[Range], partitions_min: int, rows_max: int | None) -> Iterator[Range]:
    """Pieces of about equal size, in order: at least so many, none with more messages."""
    total = sum(each.bytes for each in ranges)
    for each in ranges:
        rows, first = each.rows, each.first
        pieces = max(up(each.bytes * partitions_min, total), up(rows, rows_max or rows))
        pieces = min(rows, pieces)
        for piece in range(pieces):
            begin, end = rows * piece // pieces, rows * (piece + 1) // pieces
            yield each._replace(first=first + begin, until=first + end)


def up(one: int, other: int) -> int:
    """One divided by the other, rounded up."""
    return -(-one // other)
