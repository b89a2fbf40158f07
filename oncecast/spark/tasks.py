"""The task of the Spark source, which scans its ranges and yields Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from oncecast import errors
from oncecast.client import blocking
from oncecast.client.columns import ROWS, batches
from oncecast.client.scanning import Slice, placed
from oncecast.client.starts import from_offset
from oncecast.errors import DataLost
from oncecast.spark.ranges import Range
from oncecast.spark.source_options import HEADER_ARRAY, SourceOptions, Span
from oncecast.wire.batch_layout import TIMES, peek

GONE = (errors.MessagesLost, errors.TopicReplaced, errors.OutOfRange, errors.NoSuchTopic)
ANY = Span()  # contains all times
# Columns that the plan determines, so that no message is read for them.
PLANNED = {"topic", "offset", "partition"}
CASTS = {
    "string": pa.string(),
    HEADER_ARRAY: pa.list_(
        pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
    ),
}


def read(
    options: SourceOptions, columns: Mapping[str, str], ranges: Iterable[Range]
) -> Iterator[pa.RecordBatch]:
    """Yield these columns for the messages in the ranges, if their times match the options."""
    names, times = list(columns), options.times
    if times == ANY and columns.keys() <= PLANNED:
        for each in ranges:
            yield from counted(each, names)
        return
    needed = names if times == ANY or "timestamp" in names else [*names, "timestamp"]
    for batch in stored(options, ranges, needed):
        rows = batch if times == ANY else within(batch, times).select(names)
        if len(rows):
            yield typed(rows, columns)


def stored(
    options: SourceOptions, ranges: Iterable[Range], names: list[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the messages in the ranges, first from the archive and then from the node."""
    live = list(ranges)
    if options.archive is not None:
        from oncecast.spark.archive import reading

        directory = Path(options.archive)
        held = reading.archived(directory)
        parts = [reading.divided(each, held.get(each.topic)) for each in live]
        for old, _ in parts:
            for each in old:
                yield from reading.read(directory, each, names)
        live = [each for _, new in parts for each in new]
    if not live:
        return
    with options.node.connect(patient=True, scans=True) as client:
        found = (
            each
            for range_ in live
            for each in slices(client, range_, fail_on_loss=options.fail_on_loss)
            if may_have(each, options.times)
        )
        yield from batches(found, names)


def slices(client: blocking.Client, range_: Range, *, fail_on_loss: bool) -> Iterator[Slice]:
    """Yield the slices of a range. Raise DataLost if messages are lost, or skip them."""
    topic, topic_id, at, until = range_[:4]
    base, partition = range_.label
    while at < until:
        try:
            for each in client.scan(topic, from_offset(at), until, topic_id=topic_id):
                at = each.end
                yield placed(base, each.chunk, partition) if partition >= 0 else each
        except GONE as error:
            if fail_on_loss:
                raise DataLost(error.message) from None
            at = error.next if isinstance(error, errors.MessagesLost) else until


def counted(range_: Range, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the topic and offsets of a range without reading it. Offsets are consecutive."""
    topic, partition = range_.label
    for first in range(range_.first, range_.until, ROWS):
        until = min(first + ROWS, range_.until)
        made = {
            "offset": pa.arange(first, until),
            "topic": pa.DictionaryArray.from_arrays(
                pa.nulls(until - first, pa.int8()).fill_null(0), [topic]
            ).cast(pa.string()),
            "partition": pa.nulls(until - first, pa.int32()).fill_null(partition),
        }
        yield pa.RecordBatch.from_arrays([made[name] for name in names], names)


def may_have(one: Slice, times: Span) -> bool:
    """Return whether a slice may contain messages in this time span, without unpacking it."""
    if times == ANY:
        return True
    header = peek(one.chunk.batch)
    return bool(header.flags & TIMES) or header.time in times


def within(rows: pa.RecordBatch, times: Span) -> pa.RecordBatch:
    """Return the rows whose `timestamp` is in `times`."""
    found = rows.column("timestamp").view(pa.int64())
    chosen = pc.is_valid(found)
    if times.low is not None:
        chosen = pc.and_(chosen, pc.greater_equal(found, times.low))
    if times.high is not None:
        chosen = pc.and_(chosen, pc.less(found, times.high))
    return rows.filter(chosen)


def typed(rows: pa.RecordBatch, columns: Mapping[str, str]) -> pa.RecordBatch:
    """Return the rows with the types that Spark expects."""
    arrays = [
        each.cast(CASTS[kind]) if kind in CASTS else each
        for each, kind in zip(rows.columns, columns.values(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, list(columns))
