"""Read a topic as a stream of Arrow batches, for Polars, DuckDB, pandas and other tools."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from oncecast.client import blocking
from oncecast.client.options import DEFAULT_ADDRESS
from oncecast.client.scanning import Located, Slice, placed
from oncecast.client.starts import EARLIEST, NEW, from_offset
from oncecast.errors import InvalidArgument, Partitioned
from oncecast.wire.commands import FromOffset, Start
from oncecast.wire.partitions import partition_topic

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

BATCH_ROWS = 65_536


def read_arrow(
    topic: str,
    node: str | blocking.Client = DEFAULT_ADDRESS,  # the address of a node, or an open client
    *,
    start: Start = EARLIEST,
    until: int | None = None,  # default: the end of the topic now
    columns: Sequence[str] | None = None,  # default: all
    rows: int = BATCH_ROWS,  # maximum messages per batch
    follow: float | None = None,  # seconds between checks for new messages; None to stop at the end
) -> pa.RecordBatchReader:
    """Return the messages from `start` to `until` (exclusive) as Arrow batches, in order.

    With `follow`, the stream waits for new messages and ends only at `until`. The partitions of a
    topic are read one after another, with the additional column `partition`. Reading does not move
    any cursor and does not keep messages from being deleted. It raises the same errors as `scan`.
    """
    import_arrow()
    import pyarrow as pa

    from oncecast.wire.batch_arrow import SCHEMA

    known = SCHEMA.append(pa.field("partition", pa.int32()))
    for name in columns or ():
        if name not in known.names:
            remedy = f"choose from {', '.join(SCHEMA.names)}"
            raise InvalidArgument(f"column {name!r:.80} does not exist", remedy)
    if rows < 1:
        raise InvalidArgument(f"rows is {rows}", "use at least one message per batch")
    with ExitStack() as opened:
        client = opened.enter_context(blocking.connect(node)) if isinstance(node, str) else node
        reading: Reading | PartitionsReading
        try:
            reading, default = Reading(client, topic, start, until, follow), SCHEMA.names
        except Partitioned as why:
            reading, default = PartitionsReading(client, why, start, until, follow), known.names
        names = default if columns is None else list(columns)
        schema = pa.schema([known.field(name) for name in names])
        batches = reading.batches(names, rows, opened.pop_all())
    return pa.RecordBatchReader.from_batches(schema, batches)


def import_arrow() -> None:
    """Raise an ImportError that names the missing package if pyarrow is not installed."""
    import oncecast.wire.batch_arrow  # noqa: F401


class Reading:
    """One read of a topic. The read fails if the topic is deleted and recreated in the meantime."""

    def __init__(
        self,
        client: blocking.Client,
        topic: str,
        start: Start,
        until: int | None,
        follow: float | None,
    ) -> None:
        self._client, self._topic, self._until, self._follow = client, topic, until, follow
        found = client.locate(topic, start)
        self._topic_id = found.topic_id
        self._at = start.offset if isinstance(start, FromOffset) else found.offset
        self._end = self._reachable(found)

    def _reachable(self, found: Located) -> int:
        """Return the offset up to which messages can be read now."""
        if self._until is None:
            return found.next
        return self._until if self._follow is None else min(self._until, found.next)

    def slices(self) -> Iterator[Slice]:
        """Yield the messages that can be read now."""
        return self._client.scan(
            self._topic, from_offset(self._at), self._end, topic_id=self._topic_id
        )

    def batches(
        self, names: Sequence[str], rows: int, opened: ExitStack
    ) -> Iterator[pa.RecordBatch]:
        from oncecast.client.columns import batches

        with opened:
            while True:
                for each in batches(self.slices(), names, rows_max=rows):
                    yield from cut(each, rows)
                if self._follow is None or self._end == self._until:
                    return
                self._wait(self._follow)

    def _wait(self, interval: float) -> None:
        """Wait until the topic has new messages."""
        self._at = self._end
        while self._end == self._at:
            time.sleep(interval)
            self._end = self._reachable(self._client.locate(self._topic, NEW))


class PartitionsReading:
    """One read of all partitions of a topic, up to their ends when the read starts."""

    def __init__(
        self,
        client: blocking.Client,
        why: Partitioned,
        start: Start,
        until: int | None,
        follow: float | None,
    ) -> None:
        if until is not None or follow is not None or isinstance(start, FromOffset):
            raise why.reworded(
                f"topic {why.topic!r} has {why.partitions} partitions, each with its own offsets, "
                "so an offset, `until` and `follow` are not available"
            )
        self._topic = why.topic
        self._parts = [
            Reading(client, partition_topic(why.topic, partition), start, None, None)
            for partition in range(why.partitions)
        ]

    def batches(
        self, names: Sequence[str], rows: int, opened: ExitStack
    ) -> Iterator[pa.RecordBatch]:
        from oncecast.client.columns import batches

        with opened:
            for partition, part in enumerate(self._parts):
                slices = (placed(self._topic, each.chunk, partition) for each in part.slices())
                for each in batches(slices, names, rows_max=rows):
                    yield from cut(each, rows)


def cut(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(batch), rows):
        yield batch.slice(first, rows)
