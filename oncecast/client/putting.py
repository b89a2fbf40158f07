"""Puts on their way to the session: those of one turn of the loop, and of one topic, share a batch.

When much is under way already, messages gather until an answer comes: the busier, the larger the
batches. `put_nowait` is the hottest path of a publisher: a look-up, a check and an append.
"""

# ruff: noqa: ASYNC109  # what happens when time is over is part of the interface

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from oncecast.client.errors import (
    InvalidTopic,
    OncecastError,
    Overloaded,
    PayloadTooLarge,
    TimedOut,
    raised,
)
from oncecast.client.parcel import MESSAGE_BYTES, Parcel, Receipt, slices
from oncecast.client.session.local import NotStored, Produce, Stored
from oncecast.kernel.protocol import Value
from oncecast.wire.batch import Oversized
from oncecast.wire.batch_builder import to_bytes
from oncecast.wire.batch_layout import FRAME_BYTES
from oncecast.wire.errors import InvalidTopic as InvalidTopicRefusal
from oncecast.wire.errors import Refusal
from oncecast.wire.limits import Limits, is_name

CUT_BYTES = 256 * 1024  # a batch that has grown so large leaves at once
BUFFER_BYTES = 64 * 1024 * 1024  # put and not stored: beyond, nothing more is taken
FLYING = 16  # batches under way at which messages begin to gather
MANY = 256  # topics: each time that so many gather, it is looked how much that is
PAYLOAD_BYTES_MAX = 60 * 1024 * 1024

UNDER_WAY = "it stays under way: do not put it again, `flush` tells when it is stored"
NOT_TAKEN = "nothing of it was put: put it again later"


class Putting:
    """`request` is where batches go; `send` lets them leave without another turn of the loop."""

    def __init__(
        self,
        request: Callable[[Value], None],
        send: Callable[[], object],
        *,
        busy: Callable[[], Refusal | None] = lambda: None,
        zstd: int | None = None,
        left: int = 0,  # batches of an earlier life that are still to be stored
    ) -> None:
        self._request, self._send, self._busy, self._zstd = request, send, busy, zstd
        self._loop = asyncio.get_running_loop()
        self._open: dict[str, Parcel] = {}  # by topic: still taking
        self._flying: dict[int, Parcel] = {}  # by ticket: with the session
        self._tickets = 0
        self._bytes = 0  # of all parcels
        self._due = False
        self._left = left
        self._flushing: list[tuple[int, asyncio.Future[None]]] = []  # each waits up to this ticket
        self._room: list[asyncio.Future[None]] = []
        self._failure: Exception | None = None  # of puts that nobody waits for
        self.broken: OncecastError | None = None  # for good
        self._most = self._cut_bytes = 0  # of a batch: what its messages may take, and when it goes
        self.limit(Limits().batch_bytes_max)

    def limit(self, batch_bytes_max: int) -> None:
        """The node takes no larger batches."""
        self._most = min(batch_bytes_max - FRAME_BYTES, PAYLOAD_BYTES_MAX + MESSAGE_BYTES)
        self._cut_bytes = min(CUT_BYTES, self._most // 2)

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
            if parcel.bytes > self._cut_bytes:
                self._full(parcel)
        else:
            self._add(parcel, value, key, headers).silent = True

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
                timeout = await self.wait_for_room(timeout)
            parcel = self._open.get(topic) or self._begin(topic)
        waiter: asyncio.Future[Receipt] = self._loop.create_future()
        self._add(parcel, value, key, headers, waiter)
        if timeout is None:
            return await waiter
        try:
            return await asyncio.wait_for(waiter, timeout)
        except TimeoutError:
            raise self.late(
                f"topic {topic!r}: not stored within {timeout:g} s", UNDER_WAY
            ) from None

    async def put_many(
        self, topic: str, values: Iterable[bytes], timeout: float | None
    ) -> Receipt | None:
        """All of them, in order; returns when they are stored, with the receipt of the last."""
        pieces = self._pieces(values)
        if not pieces:
            return None
        waiters: list[asyncio.Future[Receipt]] = []
        taken = 0
        try:
            async with asyncio.timeout(timeout):
                for some, size in pieces:
                    if self._bytes >= BUFFER_BYTES:
                        await self.wait_for_room()
                    waiters.append(self._put_some(topic, some, size))
                    taken += len(some)
                return (await asyncio.gather(*waiters))[-1]
        except TimeoutError:
            fact = f"topic {topic!r}: not all was stored within {timeout:g} s"
            rest = f"the first {taken} stay under way, `flush` tells of them: put only the others"
            raise self.late(fact, rest if len(waiters) < len(pieces) else UNDER_WAY) from None
        finally:
            abandon(waiters)

    def _pieces(self, values: Iterable[bytes]) -> list[tuple[list[bytes], int]]:
        """With what each takes; all can be put, or none of them is."""
        values = list(values)
        if not set(map(type, values)) <= {bytes}:
            values = [to_bytes("value", value) for value in values]
        pieces = list(slices(values, self._cut_bytes))
        largest = max((size for _, size in pieces), default=0)
        if largest > self._most:
            raise self._too_large(largest - MESSAGE_BYTES)
        return pieces

    def _put_some(self, topic: str, values: list[bytes], size: int) -> asyncio.Future[Receipt]:
        parcel = self._open.get(topic) or self._begin(topic)
        if parcel.bytes + size > self._most:
            parcel = self._another(parcel, size)
        parcel.values += values
        parcel.bytes += size
        waiter: asyncio.Future[Receipt] = self._loop.create_future()
        parcel.waiters.append((waiter, len(parcel) - 1))
        if parcel.bytes > self._cut_bytes:
            self._cut(parcel)
        return waiter

    def put_gathered(self, messages: deque[tuple[Any, ...]]) -> bool:
        """As `put_nowait`, all that are there now and there is room for; whether that was all.

        What is wrong with a message is raised by `flush`.
        """
        for _ in range(len(messages)):
            if self._bytes >= BUFFER_BYTES:
                return False
            try:
                self.put_nowait(*messages.popleft())
            except Exception as error:  # noqa: BLE001  # flush raises it
                self._failure = self._failure or error
        return True

    def _begin(self, topic: str) -> Parcel:
        if self.broken is not None:
            raise self.broken
        if self._bytes >= BUFFER_BYTES:
            fact = f"{self._bytes} bytes were put and are not stored yet"
            raise Overloaded(fact, "wait for `flush` or `room`, or use `put`, which waits")
        if not is_name(topic):
            raise InvalidTopic(InvalidTopicRefusal().text)
        return self._fresh(topic)

    def _fresh(self, topic: str) -> Parcel:
        many = len(self._open) % MANY == MANY - 1
        if many and sum(each.bytes for each in self._open.values()) > BUFFER_BYTES // 2:
            self._cut_all()  # only then it counts
        parcel = self._open[topic] = Parcel(topic, self._most)
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
    ) -> Parcel:
        """A message that is waited for, or has more than a value. Returns what it is in."""
        if key is None and headers is None and type(value) is bytes:
            size = MESSAGE_BYTES + len(value)
            if parcel.bytes + size > self._most:
                parcel = self._another(parcel, size)
            parcel.values.append(value)
            parcel.bytes += size
        else:
            parcel = self._add_rest(parcel, value, key, headers)
        if waiter is not None:
            parcel.waiters.append((waiter, len(parcel) - 1))
        if parcel.bytes > self._cut_bytes:
            self._cut(parcel)
        return parcel

    def _add_rest(
        self, parcel: Parcel, value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None
    ) -> Parcel:
        try:
            parcel.add(value, key, headers)
        except Oversized:
            parcel = self._another(parcel, 0)
            try:
                parcel.add(value, key, headers)
            except Oversized as error:
                raise PayloadTooLarge(str(error)) from None
        return parcel

    # -- out --

    def _full(self, parcel: Parcel) -> None:
        """It leaves at once; but what came last may be more than the batch can hold."""
        if parcel.bytes > self._most:
            value = parcel.values.pop()
            parcel.bytes -= MESSAGE_BYTES + len(value)
            self._add(parcel, value, None, None).silent = True
        else:
            self._cut(parcel)

    def _another(self, parcel: Parcel, size: int) -> Parcel:
        """It can hold no more; the next, if any can hold so much."""
        if size > self._most:
            raise self._too_large(size - MESSAGE_BYTES)
        self._cut(parcel)
        return self._fresh(parcel.topic)

    def _too_large(self, size: int) -> PayloadTooLarge:
        most = self._most - MESSAGE_BYTES
        return PayloadTooLarge(f"a message of {size} bytes, where {most} are allowed")

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
        try:
            batch = parcel.build(self._zstd)
        except Exception as error:  # noqa: BLE001  # flush or the waiters raise it
            fact = f"topic {parcel.topic!r}: cannot pack {count} messages: {error!r}"
            self._refused(parcel, OncecastError(fact))
            return
        self._bytes += parcel.bytes
        self._tickets += 1
        self._flying[self._tickets] = parcel
        self._request(Produce(self._tickets, parcel.topic, count, batch))

    # -- what came of it --

    def stored(self, event: Stored) -> None:
        parcel = self._landed(event.ticket)
        if parcel is None:
            return
        offset, kept = event.offset, event.kept
        for waiter, index in parcel.waiters:
            if not waiter.done():
                waiter.set_result(Receipt(offset + index if offset >= 0 else -1, kept))

    def not_stored(self, event: NotStored) -> None:
        self._refused(self._landed(event.ticket), raised(event.why))

    def _refused(self, parcel: Parcel | None, error: OncecastError) -> None:
        """Tell the waiters; where none is left, `flush` raises the error."""
        waiters = [] if parcel is None else [waiter for waiter, _ in parcel.waiters]
        if parcel is None or parcel.silent or any(waiter.cancelled() for waiter in waiters):
            self._failure = self._failure or error
        fail(waiters, error)

    def _landed(self, ticket: int) -> Parcel | None:
        parcel = self._flying.pop(ticket, None)
        if parcel is None:  # of an earlier life: nobody waits, but for all of them
            self._left -= 1
            self._tell_flushed()
            return None
        self._bytes -= parcel.bytes
        if self._open and not self._due and len(self._flying) < FLYING:
            self._cut_all()
        if self._room and self._bytes < BUFFER_BYTES // 2:
            wake(self._room)
            self._room.clear()
        if self._flushing:
            self._tell_flushed()
        return parcel

    def _tell_flushed(self) -> None:
        """Those who wait for nothing that is still under way."""
        oldest = 0 if self._left > 0 else next(iter(self._flying), self._tickets + 1)
        wake([waiter for ticket, waiter in self._flushing if ticket < oldest])
        self._flushing = [each for each in self._flushing if each[0] >= oldest]

    @property
    def left(self) -> bool:
        """Whether anything was put that is not stored."""
        return bool(self._open or self._flying or self._left > 0)

    async def flush(self, timeout: float | None) -> None:
        """Return when all that was put so far is stored; raise what became of puts nobody waited
        for."""
        self._cut_all()
        if self.left and self.broken is None:
            waiter = self._loop.create_future()
            self._flushing.append((self._tickets, waiter))
            remedy = "what was put stays under way: flush again to wait for it, do not put it again"
            await self._wait(waiter, timeout, "not all is stored", remedy)
        self.raise_failure()
        if self.broken is not None:
            raise self.broken

    def raise_failure(self) -> None:
        """Raise the first failure of a put without a waiter, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def wait_for_room(self, timeout: float | None = None) -> float | None:
        """Returns what is left of the time."""
        end = None if timeout is None else self._loop.time() + timeout
        while self._bytes >= BUFFER_BYTES and self.broken is None:
            waiter = self._loop.create_future()
            self._room.append(waiter)
            await self._wait(waiter, timeout, "no room for more", NOT_TAKEN)
            timeout = None if end is None else max(0.0, end - self._loop.time())
        return timeout

    async def _wait(
        self, waiter: asyncio.Future[None], timeout: float | None, what: str, remedy: str
    ) -> None:
        try:
            await asyncio.wait_for(waiter, timeout)
        except TimeoutError:
            raise self.late(f"{what} after {timeout:g} s", remedy) from None

    def late(self, fact: str, remedy: str) -> OncecastError:
        """A node that says why it takes nothing knows better than the clock."""
        busy = self._busy()
        if busy is None:
            return TimedOut(fact, remedy)
        return Overloaded(f"{fact}: {busy.text}", remedy)

    def fail(self, error: OncecastError) -> None:
        """There will be no answers any more."""
        self.broken = error
        parcels = [*self._open.values(), *self._flying.values()]
        self._open.clear()
        self._flying.clear()
        self._bytes = 0
        for parcel in parcels:
            self._refused(parcel, error)
        wake([*self._room, *(waiter for _, waiter in self._flushing)])


def fail(waiters: list[asyncio.Future[Any]], error: OncecastError) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(error)


def abandon(waiters: list[asyncio.Future[Any]]) -> None:
    """Nobody waits for them any more."""
    for waiter in waiters:
        if not waiter.cancel() and not waiter.cancelled():
            waiter.exception()  # has been looked at


def wake(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
