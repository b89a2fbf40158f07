"""Read a range of a topic without a subscription."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from oncecast.client.arguments import check_names
from oncecast.client.options import SCAN_BYTES
from oncecast.client.requests import Requests
from oncecast.client.session.local import Survey
from oncecast.client.starts import from_offset
from oncecast.errors import (
    BadBatch,
    InvalidArgument,
    MessagesLost,
    OutOfRange,
    Partitioned,
    TopicReplaced,
)
from oncecast.wire import batch
from oncecast.wire.commands import FromOffset, Start, Subscribe
from oncecast.wire.frames import Chunk, Scan, Scanned
from oncecast.wire.message import Message
from oncecast.wire.partitions import partition_topic

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

SCAN_PAST = "to read the messages after it, scan from the next offset"


class Slice(NamedTuple):
    """Consecutive messages of a topic, packed as they were put."""

    topic: str
    chunk: Chunk

    @property
    def offset(self) -> int:
        return self.chunk.offset

    @property
    def end(self) -> int:
        return self.chunk.offset + self.chunk.count

    @property
    def partition(self) -> int:
        """Return the partition that has the messages, or -1 in a plain topic."""
        return -1

    def messages(self) -> list[Message]:
        """Return the messages. Raise BadBatch if they are damaged or have a newer format."""
        with self._readable():
            partition = self.partition
            return batch.messages(self.chunk.batch, **self._arguments, partition=partition)

    def to_arrow(self) -> pa.RecordBatch:
        from oncecast.wire.batch_arrow import to_arrow  # pyarrow is optional

        with self._readable():
            return to_arrow(self.chunk.batch, **self._arguments)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except batch.BadBatch as error:
            offsets = f"offsets {self.offset} to {self.end - 1} of topic {self.topic!r}"
            raise BadBatch(f"{offsets} cannot be read: {error}", SCAN_PAST) from None

    @property
    def _arguments(self) -> dict[str, Any]:
        chunk = self.chunk
        return {
            "topic": self.topic,
            "offset": chunk.offset,
            "producer": chunk.producer,
            "sequence": chunk.sequence,
            "skip": chunk.skip,
            "count": chunk.count,
        }


class PartSlice(Slice):
    """Consecutive messages of a partition. `topic` is the name of the partitioned topic."""

    _partition = -1

    @property
    def partition(self) -> int:
        return self._partition

    def __reduce__(self) -> tuple[Any, ...]:
        return placed, (*self, self._partition)


def placed(topic: str, chunk: Chunk, partition: int) -> Slice:
    """Return a slice of a partition."""
    made = PartSlice(topic, chunk)
    made._partition = partition  # a tuple subclass has no constructor of its own
    return made


class Located(NamedTuple):
    """The offset that a start refers to, the topic's id, and its first and next offsets.

    `time` is when the message at `offset` was appended, in microseconds since 1970, or 0 if the
    topic has no message there.
    """

    offset: int
    topic_id: int
    first: int
    next: int
    time: int = 0


class Page(NamedTuple):
    """One page of a topic: its id, its first and next offsets, and consecutive messages.

    The messages begin at `offset`, the kept offset nearest to the requested one.
    """

    topic_id: int
    first: int
    next: int
    offset: int
    slices: list[Slice]


class Scans:
    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def locate(self, topic: str, start: Start) -> Located:
        found = await self._scan(Scan(0, topic, start))
        return Located(found.offset, found.topic_id, found.first, found.next, found.time)

    async def pages(
        self,
        topic: str,
        start: Start,
        until: int | None,
        *,
        topic_id: int = 0,
        size: int = SCAN_BYTES,
    ) -> AsyncGenerator[list[Slice], None]:
        """Yield the slices from `start` to `until` (exclusive), one list per answer.

        Read the partitions of a topic one after another.
        """
        if size < 1:
            raise InvalidArgument(f"size is {size}", "request at least one byte")
        try:
            found = await self._scan(
                Scan(0, topic, start, -1 if until is None else until, size, topic_id)
            )
        except Partitioned as why:
            async for page in self._of_partitions(why, start, until, size):
                yield page
            return
        until = found.next if until is None else until
        topic_id = topic_id or found.topic_id
        check(topic, found, start, until, topic_id)
        while found.chunks:
            page = [Slice(topic, chunk) for chunk in found.chunks]
            if page[-1].end >= until:
                yield page
                return
            start = from_offset(page[-1].end)
            ahead = asyncio.ensure_future(self._scan(Scan(0, topic, start, until, size, topic_id)))
            ahead.add_done_callback(mark_retrieved)
            try:
                yield page
                found = await ahead
            finally:
                ahead.cancel()
            check(topic, found, start, until, topic_id)

    async def page(
        self, topic: str, start: Start, *, size: int, topic_id: int = 0, wait: float = 0.0
    ) -> Page:
        """Return about `size` bytes of messages. Wait up to `wait` seconds at the topic's end."""
        scan = Scan(0, topic, start, -1, size, topic_id, wait_ms=int(wait * 1000))
        found = await self._scan(scan)
        slices = [Slice(topic, chunk) for chunk in found.chunks]
        return Page(found.topic_id, found.first, found.next, found.offset, slices)

    async def _of_partitions(
        self, why: Partitioned, start: Start, until: int | None, size: int
    ) -> AsyncGenerator[list[Slice], None]:
        if until is not None or isinstance(start, FromOffset):
            raise why.reworded(
                f"topic {why.topic!r} has {why.partitions} partitions, each with its own offsets"
            )
        for partition in range(why.partitions):
            name = partition_topic(why.topic, partition)
            async for page in self.pages(name, start, None, size=size):
                yield [placed(why.topic, each.chunk, partition) for each in page]

    async def _scan(self, scan: Scan) -> Scanned:
        check_names(Subscribe(scan.topic, "scan", scan.start, 0))
        seconds = self._requests.timeout + scan.wait_ms / 1000
        found: Scanned = await self._requests.answer(lambda ticket: Survey(ticket, scan, seconds))
        return found


def mark_retrieved(done: asyncio.Future[Scanned]) -> None:
    """Avoid a warning about an unretrieved error if the scan is abandoned."""
    if not done.cancelled():
        done.exception()


def check(topic: str, found: Scanned, start: Start, until: int, topic_id: int) -> None:
    """Raise an error if the topic was replaced or does not hold the whole range."""
    if found.topic_id != topic_id:
        raise TopicReplaced(topic)
    asked = start.offset if isinstance(start, FromOffset) else found.offset
    beyond = max(asked, until)
    if beyond > found.next:
        raise OutOfRange(found.next).within(f"offset {beyond} of topic {topic!r}")
    if asked < min(found.offset, until):
        raise MessagesLost(topic, asked, found.offset)
