"""Decide which messages a query reads next, and how to split them into tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

PIECE_BYTES = 128 << 20  # bytes per task, as for files in Spark
PIECE_BYTES_MIN = 4 << 20  # smaller pieces are not worth a task


class Position(NamedTuple):
    """The next offset to read, the id of the topic, and the offset at which the query began.

    Spark records the end of a micro-batch before it reads, but not the start of the first one. So
    the end includes it, for a query that crashes in its first micro-batch.
    """

    topic_id: int
    begin: int
    next: int


class Range(NamedTuple):
    topic: str
    topic_id: int
    first: int
    until: int
    size: int = 1  # approximate bytes of a message

    @property
    def rows(self) -> int:
        return self.until - self.first

    @property
    def bytes(self) -> int:
        return self.rows * self.size


Positions = Mapping[str, Position]


def between(start: Positions, end: Positions) -> list[Range]:
    """Return the range to read of each topic in `end`."""
    ranges = (
        Range(topic, at.topic_id, resumed(start.get(topic), at), at.next)
        for topic, at in sorted(end.items())
    )
    return [each for each in ranges if each.rows > 0]


def resumed(start: Position | None, end: Position) -> int:
    """Return where to resume: at `start`, if both have the same topic id and beginning."""
    if start is None or start[:2] != end[:2]:
        return end.begin
    return start.next


def limited(start: Positions, end: Positions, rows_max: int) -> dict[str, Position]:
    """Return the positions after `rows_max` messages. Each topic gets its share of the backlog."""
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
    for each in ranges:  # the first topics get what rounding has left
        at = reached[each.topic]
        more = min(each.until - at.next, left)
        reached[each.topic] = at._replace(next=at.next + more)
        left -= more
    return reached


def enough(ranges: list[Range], cores: int) -> int:
    """Return a number of pieces that keeps all cores busy without too many task starts.

    A task start costs as much as thousands of messages.
    """
    total = sum(each.bytes for each in ranges)
    whole = up(up(total, PIECE_BYTES), cores) * cores
    return min(whole, max(1, up(total, PIECE_BYTES_MIN)))


def split(ranges: list[Range], partitions_min: int, rows_max: int | None) -> Iterator[Range]:
    """Yield at least `partitions_min` pieces of similar size, with up to `rows_max` messages."""
    total = sum(each.bytes for each in ranges)
    for each in ranges:
        rows, first = each.rows, each.first
        pieces = max(up(each.bytes * partitions_min, total), up(rows, rows_max or rows))
        pieces = min(rows, pieces)
        for piece in range(pieces):
            begin, end = rows * piece // pieces, rows * (piece + 1) // pieces
            yield each._replace(first=first + begin, until=first + end)


def up(one: int, other: int) -> int:
    """Return `one` divided by `other`, rounded up."""
    return -(-one // other)
