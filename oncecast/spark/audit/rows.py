"""The rows that checks exchange, and the base class of checks, which read groups of sorted rows.

All numbers are 64-bit integers, and -1 means none. Names are hashes. The rule of a check takes the
sorted rows of one group, and yields faults and rows for other checks. A rule keeps little in
memory, so the size of a group does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from oncecast.spark.audit.faults import MEANING

FILE_BITS = 40  # a line's position is the number of its file, followed by this many bits
BATCH = 10_000  # maximum rows in an Arrow batch
Columns = dict[str, Any]  # numpy arrays of the same length


class What(IntEnum):
    """The kinds of rows. A check that sorts by kind reads them in this order."""

    CREATE = 1
    PUT = 2
    STORED = 3
    FAILED = 4
    SUBSCRIBE = 5
    UNSUBSCRIBE = 6
    ATTACH = 7
    SEEK = 8
    DELIVERY = 9
    ACK = 10
    FLUSHED = 11
    NACK = 12
    SKIP = 13
    LEAVE = 14
    FENCED = 15
    SHARE = 16
    SETTLED = 17
    LEASE = 18
    ACCEPT = 19
    ACCEPTED = 20
    EFFECT = 21
    LETTER = 22
    NAME = 30  # a name and its hash
    BLOCK = 31  # a summary of a file block
    PLACED = 40  # a message at an offset: `at` is its answer, `other` its first delivery
    UNKNOWN = 41  # puts that may be stored without a line that proves it
    STRETCH = 42  # a range of known offsets without a gap
    SESSION = 43  # a summary of a session
    OPEN = 44  # a reader that waits for its next message
    DROPPED = 45  # messages that a policy may have dropped
    UNDONE = 46  # settled messages of a shared subscription that were never done


FIRST_FAULT = 100
FAULTS = tuple(MEANING)
CODES = {name: FIRST_FAULT + number for number, name in enumerate(FAULTS)}


class Row(NamedTuple):
    what: int
    at: int = -1
    other: int = -1
    time: int = -1  # microseconds
    topic: int = -1
    reader: int = -1
    session: int = -1
    producer: int = -1
    sequence: int = -1
    offset: int = -1
    until: int = -1
    flag: int = 0
    certain: int = 1  # whether the writer ended its trace and knows the outcome of its calls
    messages: int = 1
    data: bytes = b""


SPARK_SCHEMA = ", ".join(f"{name} {'binary' if name == 'data' else 'long'}" for name in Row._fields)
ARROW_SCHEMA = pa.schema(
    [(name, pa.binary() if name == "data" else pa.int64()) for name in Row._fields]
)


def fault(name: str, **fields: Any) -> Row:
    return Row(CODES[name], **fields)


class Check(NamedTuple):
    """A check of certain kinds of rows, grouped by `key` and sorted by `order`."""

    kinds: tuple[int, ...]
    key: tuple[str, ...]
    order: tuple[str, ...]
    columns: tuple[str, ...]  # the columns that the rule receives
    rule: Callable[[Iterator[tuple[Any, ...]]], Iterable[Row]]
    squeeze: Callable[[Columns], Columns] = lambda columns: columns  # may remove or merge rows

    @property
    def needed(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.key, *self.order, *self.columns)))

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Check sorted batches with the columns `needed`, and yield batches of result rows."""
        rows = (row for batch in batches for row in self._rows(batch))
        whose = itemgetter(0)
        found = (
            each
            for _, group in groupby(rows, whose)
            for each in self.rule(row[1:] for row in group)
        )
        while some := list(islice(found, BATCH)):
            yield as_batch(some)

    def _rows(self, batch: pa.RecordBatch) -> Iterable[tuple[Any, ...]]:
        columns = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in self.needed}
        columns = self.squeeze(columns)
        keys = zip(*(columns[name].tolist() for name in self.key), strict=True)
        return zip(keys, *(columns[name].tolist() for name in self.columns), strict=True)


def as_batch(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array(values, each.type)
            for values, each in zip(zip(*rows, strict=True), ARROW_SCHEMA, strict=True)
        ],
        schema=ARROW_SCHEMA,
    )


def chosen(columns: Columns, keep: Any) -> Columns:
    return {name: values[keep] for name, values in columns.items()}


def same_as_before(columns: Columns, *names: str) -> Any:
    """Return a mask of the rows in which these columns equal those of the previous row."""
    same = np.zeros(len(columns[names[0]]), dtype=bool)
    same[1:] = True
    for name in names:
        same[1:] &= columns[name][1:] == columns[name][:-1]
    return same


class Spans:
    """A set of offsets, stored as sorted ranges that do not touch."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.ranges: list[tuple[int, int]] = list(ranges)

    def add(self, first: int, until: int) -> None:
        ranges = self.ranges
        if ranges and ranges[-1][0] <= first <= ranges[-1][1]:  # by far the most common case
            ranges[-1] = (ranges[-1][0], max(until, ranges[-1][1]))
            return
        low = high = self._after(first)
        if low and ranges[low - 1][1] >= first:
            low -= 1
            first = ranges[low][0]
        while high < len(ranges) and ranges[high][0] <= until:
            until = max(until, ranges[high][1])
            high += 1
        if low < high:
            until = max(until, ranges[high - 1][1])
        ranges[low:high] = [(first, until)]

    def _after(self, offset: int) -> int:
        """Return the index of the first range that begins after `offset`."""
        low, high = 0, len(self.ranges)
        while low < high:
            middle = (low + high) // 2
            if self.ranges[middle][0] <= offset:
                low = middle + 1
            else:
                high = middle
        return low

    def __contains__(self, offset: int) -> bool:
        at = self._after(offset)
        return at > 0 and offset < self.ranges[at - 1][1]

    def split(self, first: int, until: int) -> Iterator[tuple[int, int, bool]]:
        """Yield the parts of a range, and for each part whether the set contains it."""
        at = max(0, self._after(first) - 1)
        while first < until:
            while at < len(self.ranges) and self.ranges[at][1] <= first:
                at += 1
            low, high = self.ranges[at] if at < len(self.ranges) else (until, until)
            inside = low <= first
            end = min(until, high if inside else low)
            yield first, end, inside
            first = end
