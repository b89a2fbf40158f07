"""Puts on their way to the session: those of one turn of the loop, and of one topic, share a batch.

When much is under way already, messages gather until an answer comes: the busier, the larger the
batches. `put_nowait` is the hottest path of a publisher: a look-up, a check and an append.
"""

# ruff: noqa: ASYNC109  # what happens when time is over is part of the interface

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from oncecast.client.errors import (
    InvalidTopic,
    OncecastError,
    Overloaded,
    PayloadTooLarge,
    TimedOut,
    raised,
)
from oncecast.kernel.protocol import Value
from oncecast.pubsub.batch import Builder, Oversized
from oncecast.pubsub.errors import InvalidTopic as InvalidTopicRefusal
from oncecast.pubsub.errors import Refusal
from oncecast.pubsub.limits import is_name
from oncecast.session.local import NotStored, Produce, Stored

CUT_BYTES = 256 * 1024  # a batch that has grown so large leaves at once
MESSAGE_BYTES = 20  # counted for each message beside its value
BUFFER_BYTES = 64 * 1024 * 1024  # put and not stored: beyond, nothing more is taken
FLYING = 16  # batches under way at which messages begin to gather
PAYLOAD_BYTES_MAX = 60 * 1024 * 1024
CHUNK = 1024  # values of `put_many` that are looked at together


class Receipt(NamedTuple):
    """Where a message is: on disk, for ever its own. -1 and None: stored, but that is all we know.

    Not `kept`: nobody subscribes to the topic and nothing retains it, so nobody will ever get it.
    """

    offset: int
    kept: bool | None


class Parcel:
    """Messages of one topic that become a batch."""

    __slots__ = ("builder", "bytes", "silent", "time", "topic", "values", "waiters")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.values: list[bytes] = []  # without key and headers, not in the builder yet
        self.builder: Builder | None = None
        self.bytes = 0
        self.time = time.time_ns() // 1000
        self.waiters: list[tuple[asyncio.Future[Receipt], int]] = []
        self.silent = False  # somebody put without waiting

    def __len__(self) -> int:
        return len(self.values) + (len(self.builder) if self.builder is not None else 0)

    def add(self, value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None) -> None:
        """A message of the rarer kind; raises if it is none."""
        builder = self.gather()
        before = builder.bytes
        builder.add(value, key, headers, self.time)
        self.bytes += builder.bytes - before

    def gather(self) -> Builder:
        builder = self.builder
        if builder is None:
            builder = self.builder = Builder()
        if self.values:
            builder.extend(self.values, self.time)
            self.values = []
        return builder


class Putting:
    """`request` is where batches go; `send` lets them leave without another turn of the loop."""

    def __init__(
        self,
        request: Callable[[Value], None],
        send: Callable[[], object],
        *,
        busy: Callable[[], Refusal | None] = lambda: None,
        zstd: int | None = None,
    ) -> None:
        self._request, self._send, self._busy, self._zstd = request, send, busy, zstd
        self._loop = asyncio.get_running_loop()
        self._open: dict[str, Parcel] = {}  # by topic: still taking
        self._flying: dict[int, Parcel] = {}  # by ticket: with the session
        self._tickets = 0
        self._bytes = 0  # of all parcels
        self._due = False
        self._idle: list[asyncio.Future[None]] = []
        self._room: list[asyncio.Future[None]] = []
        self._failure: Exception | None = None  # of puts that nobody waits for
        self.broken: OncecastError | None = None  # for good

    # -- in --

    def put_nowait(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        parcel = self._open.get(topic)
        if parcel is None:
            parcel = self._begin(topic)
        parcel.silent = True
        if key is None and headers is None and type(value) is bytes:
            parcel.values.append(value)
            parcel.bytes += MESSAGE_BYTES + len(value)
            if parcel.bytes > CUT_BYTES:
                self._full(parcel)
        else:
            self._add(parcel, value, key, headers)

    async def put(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        parcel = self._open.get(topic)
        if parcel is None:
            if self._bytes >= BUFFER_BYTES:
                await self.wait_for_room(timeout)
            parcel = self._open.get(topic) or self._begin(topic)
        waiter: asyncio.Future[Receipt] = self._loop.create_future()
        self._add(parcel, value, key, headers, waiter)
        if timeout is None:
            return await waiter
        try:
            return await asyncio.wait_for(waiter, timeout)
        except TimeoutError:
            raise self._late(
                f"topic {topic!r}: not stored within {timeout:g} s, though it may be yet"
            ) from None

    async def put_many(
        self, topic: str, values: Sequence[bytes], timeout: float | None
    ) -> Receipt | None:
        """All of them, in order; returns when they are stored, with the receipt of the last."""
        if not values:
            return None
        for start in range(0, len(values) - 1, CHUNK):
            if self._bytes >= BUFFER_BYTES:
                await self.wait_for_room(timeout)
            self._put_some(topic, values[start : min(start + CHUNK, len(values) - 1)])
        return await self.put(topic, values[-1], timeout=timeout)

    def _put_some(self, topic: str, values: Sequence[bytes]) -> None:
        size = sum(map(len, values))
        if size > CUT_BYTES or not set(map(type, values)) <= {bytes}:
            for value in values:
                self.put_nowait(topic, value)
            return
        parcel = self._open.get(topic) or self._begin(topic)
        parcel.silent = True
        parcel.values += values
        parcel.bytes += size + MESSAGE_BYTES * len(values)
        if parcel.bytes > CUT_BYTES:
            self._full(parcel)

    def _begin(self, topic: str) -> Parcel:
        if self.broken is not None:
            raise self.broken
        if self._bytes >= BUFFER_BYTES:
            raise Overloaded(f"{self._bytes} bytes were put and are not stored yet")
        if not is_name(topic):
            raise InvalidTopic(InvalidTopicRefusal().text)
        parcel = self._open[topic] = Parcel(topic)
        if not self._due:
            self._due = True
            self._loop.call_soon(self._turn_ends)
        return parcel

    def _add(
        self,
        parcel: Parcel,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        waiter: asyncio.Future[Receipt] | None = None,
    ) -> None:
        """A message that is waited for, or has more than a value."""
        index = len(parcel)
        if key is None and headers is None and type(value) is bytes:
            if len(value) > PAYLOAD_BYTES_MAX:
                raise too_large(len(value))
            parcel.values.append(value)
            parcel.bytes += MESSAGE_BYTES + len(value)
        else:
            try:
                parcel.add(value, key, headers)
            except Oversized as error:
                raise PayloadTooLarge(str(error)) from None
        if waiter is not None:
            parcel.waiters.append((waiter, index))
        if parcel.bytes > CUT_BYTES:
            self._cut(parcel)

    def put_later(self, *message: Any) -> None:
        """As `put_nowait`, and `flush` tells also that it could not be taken."""
        try:
            self.put_nowait(*message)
        except (OncecastError, TypeError, ValueError) as error:
            self._failure = self._failure or error

    # -- out --

    def _full(self, parcel: Parcel) -> None:
        """It leaves at once; but one message alone may be more than any batch may hold."""
        last = parcel.values[-1] if parcel.values else b""
        if len(last) > PAYLOAD_BYTES_MAX:
            parcel.values.pop()
            parcel.bytes -= MESSAGE_BYTES + len(last)
            raise too_large(len(last))
        self._cut(parcel)

    def _turn_ends(self) -> None:
        self._due = False
        if len(self._flying) < FLYING:
            self._cut_all()
            self._send()

    def _cut_all(self) -> None:
        for parcel in list(self._open.values()):
            self._cut(parcel)

    def _cut(self, parcel: Parcel) -> None:
        del self._open[parcel.topic]
        count = len(parcel)
        if not count:
            return
        batch = parcel.gather().build(zstd=self._zstd)
        parcel.builder = None
        parcel.bytes = len(batch)
        self._bytes += parcel.bytes
        self._tickets += 1
        self._flying[self._tickets] = parcel
        self._request(Produce(self._tickets, parcel.topic, count, batch))

    # -- what came of it --

    def stored(self, event: Stored) -> None:
        parcel = self._landed(event.ticket)
        if parcel is None:  # of an earlier life: nobody waits
            return
        offset, kept = event.offset, event.kept
        for waiter, index in parcel.waiters:
            if not waiter.done():
                waiter.set_result(Receipt(offset + index if offset >= 0 else -1, kept))

    def not_stored(self, event: NotStored) -> None:
        error = raised(event.why)
        parcel = self._landed(event.ticket)
        if parcel is None or parcel.silent:
            self._failure = self._failure or error
        if parcel is not None:
            fail([waiter for waiter, _ in parcel.waiters], error)

    def _landed(self, ticket: int) -> Parcel | None:
        parcel = self._flying.pop(ticket, None)
        if parcel is None:
            return None
        self._bytes -= parcel.bytes
        if self._open and not self._due and len(self._flying) < FLYING:
            self._cut_all()
        if self._room and self._bytes < BUFFER_BYTES // 2:
            wake(self._room)
        if self._idle and not self._flying and not self._open:
            wake(self._idle)
        return parcel

    async def flush(self, timeout: float | None) -> None:
        """Return when all that was put is stored; raise what became of puts nobody waited for."""
        self._cut_all()
        if self._flying and self.broken is None:
            await self._wait(self._idle, timeout, "not all is stored")
        failure, self._failure = self._failure or self.broken, None
        if failure is not None:
            raise failure

    async def wait_for_room(self, timeout: float | None = None) -> None:
        while self._bytes >= BUFFER_BYTES and self.broken is None:
            await self._wait(self._room, timeout, "no room for more")

    async def _wait(
        self, waiters: list[asyncio.Future[None]], timeout: float | None, what: str
    ) -> None:
        waiter = self._loop.create_future()
        waiters.append(waiter)
        try:
            await asyncio.wait_for(waiter, timeout)
        except TimeoutError:
            raise self._late(f"{what} after {timeout:g} s") from None

    def _late(self, fact: str) -> OncecastError:
        """A node that says why it takes nothing knows better than the clock."""
        busy = self._busy()
        return TimedOut(fact) if busy is None else Overloaded(f"{fact}: {busy.text}")

    def fail(self, error: OncecastError) -> None:
        """There will be no answers any more."""
        self.broken = error
        parcels = [*self._open.values(), *self._flying.values()]
        self._open.clear()
        self._flying.clear()
        for parcel in parcels:
            fail([waiter for waiter, _ in parcel.waiters], error)
        wake(self._room)
        wake(self._idle)


def too_large(size: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"a message of {size} bytes, where {PAYLOAD_BYTES_MAX} are allowed")


def fail(waiters: list[asyncio.Future[Any]], error: OncecastError) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(error)


def wake(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()
