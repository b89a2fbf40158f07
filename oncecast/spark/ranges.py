"""Decide which messages a query reads next, and how to split them into tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from oncecast.wire.partitions import MARK

TASK_BYTES = 128 << 20  # maximum bytes per task, as for files in Spark
TASK_BYTES_MIN = 4 << 20  # minimum bytes that are worth another task
RANGE_BYTES = 32 << 10  # number of bytes that take a task as long as one more topic does


class Position(NamedTuple):
    """The id of a topic, the offset at which the query began, and the next offset to read.

    Spark records the end of a micro-batch before it reads, but not the start of the first one. The
    end therefore also contains the start, in case the query crashes in its first micro-batch.
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
    partition_of: str = ""  # the topic that this topic is a partition of

    @property
    def label(self) -> tuple[str, int]:
        """Return the topic and the partition for the columns. A plain topic has partition -1."""
        if not self.partition_of:
            return self.topic, -1
        return self.partition_of, int(self.topic.rpartition(MARK)[2])

    @property
    def rows(self) -> int:
        return self.until - self.first

    @property
    def bytes(self) -> int:
        return self.rows * self.size


Positions = Mapping[str, Position]


def between(start: Positions, end: Positions) -> list[Range]:
    """Return the range to read from each topic in `end`."""
    ranges = (
        Range(topic, at.topic_id, resumed(start.get(topic), at), at.next)
        for topic, at in sorted(end.items())
    )
    return [each for each in ranges if each.rows > 0]


def resumed(start: Position | None, end: Position) -> int:
    """Return the offset to resume at: the one in `start`, if query and topic are unchanged."""
    if start is None or start[:2] != end[:2]:
        return end.begin
    return start.next


def limited(start: Positions, end: Positions, rows_max: int) -> dict[str, Position]:
    """Return the positions after `rows_max` messages, divided in proportion to the backlogs."""
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
    for each in ranges:  # the first topics also get the remainder
        at = reached[each.topic]
        more = min(each.until - at.next, left)
        reached[each.topic] = at._replace(next=at.next + more)
        left -= more
    return reached


def enough(ranges: list[Range], cores: int) -> int:
    """Return a number of tasks that keeps all cores busy without too many task starts.

    Starting a task takes as long as reading thousands of messages.
    """
    total = sum(each.bytes + RANGE_BYTES for each in ranges)
    whole = up(up(total, TASK_BYTES), cores) * cores
    return min(whole, max(1, up(total, TASK_BYTES_MIN)))


def packed(ranges: list[Range], tasks_min: int, rows_max: int | None) -> list[tuple[Range, ...]]:
    """Split the ranges into at least `tasks_min` tasks of similar size in bytes.

    Each task has at least one message and at most `rows_max`. Messages keep their order.
    """
    rows = sum(each.rows for each in ranges)
    count = min(rows, max(tasks_min, up(rows, rows_max or max(1, rows))))
    shelf = Shelf(ranges)
    return [task for number in range(count) for task in shelf.take(number, count, rows_max)]


class Shelf:
    """Ranges from which tasks take their share, from the first message to the last."""

    def __init__(self, ranges: list[Range]) -> None:
        self._left = deque(ranges)
        self._bytes = sum(each.bytes for each in ranges)
        self._taken = 0
        self._rows = sum(each.rows for each in ranges)

    def take(self, number: int, count: int, rows_max: int | None) -> Iterator[tuple[Range, ...]]:
        """Yield the share of task `number` of `count`, as several tasks if it has too many rows."""
        last = number + 1 == count
        share = self._bytes * (number + 1) // count - self._taken
        rows = self._rows if last else self._fitting(share, self._rows - (count - number - 1))
        for piece in range(pieces := up(rows, rows_max or rows)):
            yield tuple(self._cut(rows * (piece + 1) // pieces - rows * piece // pieces))

    def _fitting(self, share: int, rows_max: int) -> int:
        """Return how many messages fit into `share` bytes: at least 1, at most `rows_max`."""
        rows = 0
        for each in self._left:
            fits = min(each.rows, share // each.size)
            rows, share = rows + fits, share - fits * each.size
            if fits < each.rows:
                break
        return min(max(rows, 1), rows_max)

    def _cut(self, rows: int) -> Iterator[Range]:
        """Take the next `rows` messages, and yield their ranges."""
        self._rows -= rows
        while rows:
            first = self._left.popleft()
            part = first._replace(until=min(first.until, first.first + rows))
            if part.until < first.until:
                self._left.appendleft(first._replace(first=part.until))
            rows -= part.rows
            self._taken += part.bytes
            yield part


def up(one: int, other: int) -> int:
    """Return `one` divided by `other`, rounded up."""
    return -(-one // other)
