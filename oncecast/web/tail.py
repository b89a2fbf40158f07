"""Follow a topic as Server-Sent Events, without a subscription.

The id of an event is the offset of its message. A browser that reconnects sends the last id as
Last-Event-ID, so it gets each message once, in order. Scans read the topic, so a tail moves no
cursor and keeps no message. A tail reads a page, sends it, and pauses. All tails share a number of
bytes per second, so that many tails cannot slow down a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from oncecast.errors import (
    Closed,
    NotConnected,
    OncecastError,
    OutOfRange,
    Overloaded,
    TimedOut,
    TopicReplaced,
)
from oncecast.web import shapes
from oncecast.web.backend import Backend, offset
from oncecast.web.messages import start_of
from oncecast.web.problems import problem_of
from oncecast.web.views import message_shape
from oncecast.wire.commands import FromNew, FromOffset, Start
from oncecast.wire.message import Message

if TYPE_CHECKING:
    from oncecast.web.exchange import Call
    from oncecast.web.hub import Hub

PAUSE = 0.1  # seconds between two pages of a tail
SHARED_BYTES = 2 << 20  # bytes of pages per pause, over all tails
PAGE_BYTES_MIN = 16 << 10
PART_BYTES = 64 << 10  # bytes of events that are sent at once
SILENCE = 15.0  # maximum seconds without an event or a comment
RETRY = b"retry: 1000\n\n"  # milliseconds after which a browser reconnects
COMMENT = b":\n\n"

encode = msgspec.json.Encoder().encode


class Tail:
    """One stream of events, beginning at `position`."""

    def __init__(
        self, hub: Hub, backend: Backend, topic: str, topic_id: int, position: int
    ) -> None:
        self._hub, self._backend, self._topic = hub, backend, topic
        self._topic_id, self._position = topic_id, position
        self.value_bytes: int | None = None

    async def events(self) -> AsyncIterator[bytes]:
        """Yield events until the application closes, or the topic cannot be read."""
        yield RETRY
        try:
            while not self._hub.closing.is_set():
                try:
                    async for each in self._page():
                        yield each
                except (TimedOut, Overloaded):
                    yield COMMENT  # the nodes may answer later
                await self._pause()
        except (Closed, NotConnected):
            return  # the client reconnects, with a new session
        except OncecastError as error:
            yield event("problem", problem_of(error))

    async def _page(self) -> AsyncIterator[bytes]:
        size = max(PAGE_BYTES_MIN, SHARED_BYTES // max(1, self._hub.tails))
        asked = asyncio.ensure_future(
            self._backend.page(
                self._topic,
                offset(self._position),
                size=size,
                topic_id=self._topic_id,
                wait=SILENCE,
            )
        )
        closing = asyncio.ensure_future(self._hub.closing.wait())
        try:
            await asyncio.wait((asked, closing), return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                return
        finally:
            closing.cancel()
            if not asked.done():
                asked.cancel()
        page = asked.result()
        if page.topic_id != self._topic_id:
            raise TopicReplaced(self._topic)
        if page.offset > self._position:
            yield event("lost", shapes.Lost(first=self._position, next=page.offset))
            self._position = page.offset
            return
        if not page.slices:
            yield COMMENT
        for each in page.slices:
            parts, size = [], 0
            for message in each.messages():
                parts.append(self._event(message))
                size += len(parts[-1])
                if size >= PART_BYTES:  # the response waits for a slow client here
                    yield b"".join(parts)
                    parts, size = [], 0
            yield b"".join(parts)
            self._position = each.end

    def _event(self, message: Message) -> bytes:
        shape = message_shape(message, self.value_bytes)
        return b"id: %d\ndata: %b\n\n" % (shape.offset, encode(shape))

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(PAUSE):
                await self._hub.closing.wait()
        except TimeoutError:
            pass


def event(name: str, body: shapes.Shape) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode(body))


async def tail(call: Call) -> AsyncIterator[bytes]:
    """Return the events of a topic. Raise an error if the topic cannot be read."""
    last, client = call["Last-Event-ID"], call.client
    start: Start
    if last is not None:
        start = offset(last + 1)
    elif call["from"] is not None or call["timestamp"] is not None:
        start = await start_of(call)
    else:
        start = FromNew()
    found = await client.locate(call.topic, start)
    position = start.offset if isinstance(start, FromOffset) else found.offset
    if position > found.next:
        raise OutOfRange(found.next).within(f"offset {position} of topic {call.topic!r}")
    made = Tail(call.hub, call.session.backend, call.topic, found.topic_id, position)
    made.value_bytes = call["value_bytes"]
    return made.events()
