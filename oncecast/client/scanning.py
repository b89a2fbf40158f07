"""Reading a topic without a subscription: from anywhere to anywhere, by as many as like."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from oncecast.client.administering import Administering
from oncecast.client.arguments import check_names
from oncecast.client.errors import (
    BadBatch,
    InvalidArgument,
    MessagesLost,
    OutOfRange,
    TopicReplaced,
)
from oncecast.client.session.local import Survey
from oncecast.client.starts import EARLIEST, from_offset
from oncecast.wire import batch
from oncecast.wire.batch import Message
from oncecast.wire.commands import FromOffset, Seek, Start, Subscribe
from oncecast.wire.frames import Chunk, Scan, Scanned

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

SCAN_PAST = "to read what follows, scan from the next offset"
SCAN_BYTES = 4 << 20  # asked for at once; the next so many are fetched meanwhile


class Slice(NamedTuple):
    """Messages side by side in a topic, as they were put: cheap until one looks inside."""

    topic: str
    chunk: Chunk

    @property
    def offset(self) -> int:
        return self.chunk.offset

    @property
    def end(self) -> int:
        return self.chunk.offset + self.chunk.count

    def messages(self) -> list[Message]:
        """Raise BadBatch if the batch is damaged, or made by a newer version."""
        with self._readable():
            return batch.messages(self.chunk.batch, **self._meant)

    def to_arrow(self) -> pa.RecordBatch:
        from oncecast.wire.batch_arrow import to_arrow  # only who wants Arrow needs it

        with self._readable():
            return to_arrow(self.chunk.batch, **self._meant)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except batch.BadBatch as error:
            offsets = f"offsets {self.offset} to {self.end - 1} of topic {self.topic!r}"
            raise BadBatch(f"{offsets} cannot be read: {error}", SCAN_PAST) from None

    @property
    def _meant(self) -> dict[str, Any]:
        chunk = self.chunk
        return {
            "topic": self.topic,
            "offset": chunk.offset,
            "producer": chunk.producer,
            "sequence": chunk.sequence,
            "skip": chunk.skip,
            "count": chunk.count,
        }


class Located(NamedTuple):
    """Where a start is now, in which life of the topic, and from where to where it reaches."""

    offset: int
    life: int
    first: int
    next: int


class Scanning(Administering):
    """A part of `Client`."""

    async def hold(self, topic: str, subscription: str, start: Start) -> int:
        """Have a subscription at `start`, without reading it: the topic keeps what is behind it."""
        await self.call(Subscribe(topic, subscription, start, 0))
        return await self.seek(topic, subscription, start)

    async def seek(self, topic: str, subscription: str, start: Start) -> int:
        """Move a subscription that anybody may be reading; returns the offset it is at now."""
        seek = Seek(topic, subscription, start, 0, secrets.token_hex(16))
        return int((await self.call(seek)).cursor)

    async def locate(self, topic: str, start: Start) -> Located:
        """The offset that is nearest to `start` of what the topic holds, or will."""
        found = await self._scan(Scan(0, topic, start))
        return Located(found.offset, found.topic_id, found.first, found.next)

    async def scan(
        self,
        topic: str,
        start: Start = EARLIEST,
        until: int | None = None,  # the end, as it is when the scan begins
        *,
        life: int = 0,  # of the topic, as `locate` says; 0 is the present one
        size: int = SCAN_BYTES,
    ) -> AsyncIterator[Slice]:
        """What lies from `start` to before `until`, in order and without a gap.

        Nobody's cursor moves, and nothing is kept for who scans: raises MessagesLost if what was
        asked for is let go, or TopicReplaced if the topic is deleted and made anew meanwhile.
        """
        async for page in self.pages(topic, start, until, life=life, size=size):
            for each in page:
                yield each

    async def pages(
        self, topic: str, start: Start, until: int | None, *, life: int = 0, size: int = SCAN_BYTES
    ) -> AsyncGenerator[list[Slice], None]:
        """What `scan` gives, as it comes: while one page is worked on, the next is fetched."""
        if size < 1:
            raise InvalidArgument(f"size {size}: ask for at least one byte")
        found = await self._scan(Scan(0, topic, start, -1 if until is None else until, size, life))
        until = found.next if until is None else until
        life = life or found.topic_id
        check(topic, found, start, until, life)
        while found.chunks:
            page = [Slice(topic, chunk) for chunk in found.chunks]
            if page[-1].end >= until:
                yield page
                return
            start = from_offset(page[-1].end)
            ahead = asyncio.ensure_future(self._scan(Scan(0, topic, start, until, size, life)))
            ahead.add_done_callback(look_at)
            try:
                yield page
                found = await ahead
            finally:
                ahead.cancel()
            check(topic, found, start, until, life)

    async def _scan(self, scan: Scan) -> Scanned:
        check_names(Subscribe(scan.topic, "scan", scan.start, 0))
        found: Scanned = await self.finished(
            lambda ticket: Survey(ticket, scan, self.patience(None)), None
        )
        return found


def look_at(done: asyncio.Future[Scanned]) -> None:
    """What went wrong is told to who goes on; if nobody does, there is nobody to tell."""
    if not done.cancelled():
        done.exception()


def check(topic: str, found: Scanned, start: Start, until: int, life: int) -> None:
    if found.topic_id != life:
        raise TopicReplaced(topic)
    asked = start.offset if isinstance(start, FromOffset) else found.offset
    beyond = max(asked, until)
    if beyond > found.next:
        raise OutOfRange(f"offset {beyond} of topic {topic!r}: it ends before {found.next}")
    if asked < min(found.offset, until):
        raise MessagesLost(topic, asked, found.offset)
