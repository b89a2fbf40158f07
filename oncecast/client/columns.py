"""Convert slices of a topic to Arrow batches, for Spark and other tools.

Columns that are constant or count up within a slice are built without reading messages. Values,
keys, headers and individual timestamps are built slice by slice, with `batch_arrow`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from oncecast.client.scanning import Slice
from oncecast.wire.batch import BadBatch, opened_bytes
from oncecast.wire.batch_arrow import (
    BINARY,
    TIMESTAMP,
    header_array,
    key_array,
    time_array,
    value_array,
)
from oncecast.wire.batch_columns import open_columns
from oncecast.wire.batch_layout import KEYS, TIMES, Columns

ROWS = 65_536  # approximate number of messages per Arrow batch
PARTITION = "partition"  # a column of topics with partitions only
BYTES = 8 << 20  # approximate size of an Arrow batch

Make = Callable[[Columns, pa.Buffer], pa.Array]


class Opened:
    """Slices whose batches are open, ready to be converted to columns."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        self.chunks = [each.chunk for each in slices]
        self.columns = [open_columns(each.batch) for each in self.chunks]
        self.buffers = [pa.py_buffer(each.data) for each in self.columns]
        self.rows = sum(each.count for each in self.chunks)

    def any(self, flag: int) -> bool:
        """Return whether any batch has this column."""
        return any(each.header.flags & flag for each in self.columns)

    def each(self, make: Make) -> pa.Array:
        """Return a column built batch by batch by `make`, with only the selected messages."""
        parts = zip(self.columns, self.buffers, self.chunks, strict=True)
        found = [make(each, data).slice(chunk.skip, chunk.count) for each, data, chunk in parts]
        return pa.concat_arrays(found)

    def runs(self, values: Iterable[Any], kind: pa.DataType) -> pa.Array:
        """Return a column that repeats one value for all messages in a slice."""
        ends = pa.array(accumulate(each.count for each in self.chunks), pa.int32())
        runs = pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, kind))
        return pc.run_end_decode(runs)

    def upwards(self, firsts: Iterable[int]) -> pa.Array:
        """Return a column that counts up from the slice's item in `firsts`."""
        each = zip(firsts, self.chunks, strict=True)
        return pa.concat_arrays([pa.arange(first, first + chunk.count) for first, chunk in each])


def batches(
    slices: Iterable[Slice], names: Sequence[str], *, rows_max: int = ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield one topic's messages with these columns, in batches of about `rows_max` rows."""
    gathered: list[Slice] = []
    rows = size = 0
    for each in slices:
        gathered.append(each)
        rows, size = rows + each.chunk.count, size + opened_bytes(each.chunk.batch)
        if rows >= rows_max or size >= BYTES:
            yield from readable(gathered, names)
            gathered, rows, size = [], 0, 0
    if gathered:
        yield from readable(gathered, names)


def readable(slices: Sequence[Slice], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield all messages. If a batch is damaged, yield those before it, then raise BadBatch."""
    try:
        together = joined(slices, names)
    except BadBatch:
        for each in slices:
            found = each.to_arrow()
            if PARTITION in names:
                column = pa.array([each.partition] * len(found), pa.int32())
                found = found.append_column(PARTITION, column)
            yield found.select(list(names))
    else:
        yield together


def joined(slices: Sequence[Slice], names: Sequence[str]) -> pa.RecordBatch:
    """Return all messages of these slices as one Arrow batch with these columns."""
    opened = Opened(slices)
    chunks, columns = opened.chunks, opened.columns
    made: dict[str, Callable[[], pa.Array]] = {
        "key": lambda: (
            opened.each(key_array) if opened.any(KEYS) else pa.nulls(opened.rows, BINARY)
        ),
        "value": lambda: opened.each(value_array),
        "topic": lambda: opened.runs((each.topic for each in slices), pa.string()),
        "offset": lambda: opened.upwards(each.offset for each in chunks),
        "timestamp": lambda: (
            opened.each(time_array)
            if opened.any(TIMES)
            else opened.runs((each.header.time for each in columns), TIMESTAMP)
        ),
        "producer": lambda: opened.runs((each.producer for each in chunks), pa.string()),
        "sequence": lambda: opened.upwards(each.sequence for each in chunks),
        "headers": lambda: opened.each(header_array),
        PARTITION: lambda: opened.runs((each.partition for each in slices), pa.int32()),
    }
    return pa.RecordBatch.from_arrays([made[name]() for name in names], list(names))
