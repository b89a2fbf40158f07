"""Buffer puts until they are stored. Puts to one topic in one event loop iteration share a batch.

While many batches are in flight, new messages wait for an answer, so batches grow when the node is
busy. An awaited put is sent at once if no batch is in flight and the last batches had one message
each: the publisher then awaits every put, so waiting for more messages would only add latency.
`Client.put_nowait` adds plain values to an open batch directly, because that is the hottest path.

A message to a topic with partitions goes to the batch of one partition: see `routing`.

A batch has one timing. Messages with a time to live keep their order with other messages, so a put
with another timing closes the batch before it. Delayed messages have no order to keep.
"""

# ruff: noqa: ASYNC109  # timeouts are part of the interface

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any

from oncecast.client.arguments import check_topic, check_wait
from oncecast.client.parcel import MESSAGE_BYTES, Parcel, Receipt, slices
from oncecast.client.routing import Returned, Router, Routers, placed
from oncecast.client.session.local import NotStored, Produce, Stored
from oncecast.errors import NoSuchTopic, OncecastError, Overloaded, PayloadTooLarge, TimedOut
from oncecast.kernel.protocol import Value
from oncecast.wire.batch import Oversized, messages
from oncecast.wire.batch_builder import to_bytes
from oncecast.wire.batch_layout import FRAME_BYTES
from oncecast.wire.errors import DISK, Partitioned, Refusal
from oncecast.wire.errors import Overloaded as Busy
from oncecast.wire.limits import Limits
from oncecast.wire.timing import Timing

CUT_BYTES = 256 * 1024  # send a batch as soon as it reaches this size
BUFFER_BYTES = 64 * 1024 * 1024  # maximum bytes of messages that are put and not yet stored
IN_FLIGHT = 16  # number of batches in flight at which new messages wait for an answer
# Send a put at once after this many consecutive batches of one message. With a smaller number, the
# first of many concurrent tasks would send its puts alone, which doubles the number of batches.
SINGLES = 8
# Whenever this many more topics have open batches, check the total size of these batches.
MANY = 256
PAYLOAD_BYTES_MAX = 60 * 1024 * 1024
SPLIT = "split it, or store it elsewhere and put a reference to it"

STILL_IN_FLIGHT = "the message is still in flight; don't resend it, call flush() to wait for it"
ALL_IN_FLIGHT = "the messages are still in flight; don't resend them, call flush() to wait for them"
NOT_TAKEN = "nothing was put; try again later"


class Putting:
    """Collects messages into batches. `request` accepts a batch, and `send` transmits it."""

    def __init__(
        self,
        request: Callable[[Value], None],
        send: Callable[[], object],
        *,
        busy: Callable[[], Refusal | None] = lambda: None,
        zstd: int | None = None,
        left: int = 0,  # unsettled batches left in the state directory by an earlier process
        patience: float = inf,  # seconds that a put without a timeout waits while the disk is full
        routers: Routers | None = None,
    ) -> None:
        self._request, self._send, self._busy, self._zstd = request, send, busy, zstd
        self.routers = Routers() if routers is None else routers
        self._loop = asyncio.get_running_loop()
        # Batches that accept more messages, by topic, or by topic and timing.
        self.open: dict[Any, Parcel] = {}
        self._lasting: dict[str, Parcel] = {}  # open batches with only a time to live, by topic
        self._flying: dict[int, Parcel] = {}  # batches passed to the session, by ticket
        self._tickets = 0
        self._bytes = 0  # bytes of all batches in flight
        self._due = False
        self._singles = 0  # consecutive batches of one message
        self._left = left
        # Each flush, with the last ticket that it waits for.
        self._flushing: list[tuple[int, asyncio.Future[None]]] = []
        self._waiting_for_space: list[asyncio.Future[None]] = []
        self._failure: Exception | None = None  # first error from a put without a waiter
        self._patience = patience
        self._watching: asyncio.TimerHandle | None = None
        self._limited: set[asyncio.Future[Receipt]] = set()  # waiters with their own timeout
        self.broken: OncecastError | None = None  # the error that every later put raises
        # Maximum size of a batch, and the size at which it is sent.
        self._most = self._cut_bytes = 0
        self.limit(Limits().batch_bytes_max)

    def limit(self, batch_bytes_max: int) -> None:
        """Limit batches to the maximum size that the node accepts."""
        self._most = min(batch_bytes_max - FRAME_BYTES, PAYLOAD_BYTES_MAX + MESSAGE_BYTES)
        self._cut_bytes = min(CUT_BYTES, self._most // 2)
        for parcel in self.open.values():
            parcel.cut = self._cut_bytes

    @property
    def most(self) -> int:
        """Return the maximum size of a batch."""
        return self._most

    # -- in --

    def put_nowait(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        self._add(self._parcel(topic, key), value, key, headers)

    async def put(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timeout: float | None = None,
        timing: Timing | None = None,
    ) -> Receipt:
        if timeout is not None:
            check_wait(timeout)
        parcel = self.open.get(topic if timing is None else (topic, timing))
        if parcel is None:
            if self._bytes >= BUFFER_BYTES:
                timeout = await self.wait_for_space(timeout)
            parcel = self._parcel(topic, key, timing)
        waiter: asyncio.Future[Receipt] = self._loop.create_future()
        self._add(parcel, value, key, headers, waiter)
        if self._singles >= SINGLES and not self._flying:
            self._cut_all()
            self._send()
        if timeout is None:
            return await waiter
        self._limited.add(waiter)
        try:
            return await asyncio.wait_for(waiter, timeout)
        except TimeoutError:
            raise self._not_stored_within(topic, timeout) from None
        finally:
            self._limited.discard(waiter)

    async def put_many(
        self,
        topic: str,
        values: Iterable[bytes],
        timeout: float | None,
        timing: Timing | None = None,
    ) -> Receipt | None:
        """Put all values in order. Return the receipt of the last one once all are stored."""
        if timeout is not None:
            check_wait(timeout)
        pieces = self._pieces(values)
        if not pieces:
            return None
        waiters: list[asyncio.Future[Receipt]] = []
        taken = 0
        try:
            async with asyncio.timeout(timeout):
                for some, size in pieces:
                    if self._bytes >= BUFFER_BYTES:
                        await self.wait_for_space()
                    waiters.append(self._put_some(topic, some, size, timing))
                    taken += len(some)
                    if timeout is not None:
                        self._limited.add(waiters[-1])
                return (await asyncio.gather(*waiters))[-1]
        except TimeoutError:
            message = f"topic {topic!r}: not all messages were stored within {timeout:g} s"
            if len(waiters) == len(pieces):
                raise self.late(message, ALL_IN_FLIGHT, in_flight=True) from None
            raise self.late(message, only_the_rest(taken)) from None
        except Overloaded as full:
            if taken and len(waiters) < len(pieces):
                full.remedy = only_the_rest(taken)
            raise
        finally:
            self._limited.difference_update(waiters)
            abandon(waiters)

    def _pieces(self, values: Iterable[bytes]) -> list[tuple[list[bytes], int]]:
        """Split the values into chunks with their sizes. Raise an error if a value is too large."""
        values = list(values)
        if not set(map(type, values)) <= {bytes}:
            values = [to_bytes("value", value) for value in values]
        pieces = list(slices(values, self._cut_bytes))
        largest = max((size for _, size in pieces), default=0)
        if largest > self._most:
            raise self._too_large(largest - MESSAGE_BYTES)
        return pieces

    def _put_some(
        self, topic: str, values: list[bytes], size: int, timing: Timing | None
    ) -> asyncio.Future[Receipt]:
        parcel = self._parcel(topic, None, timing)
        if parcel.bytes + size > self._most:
            parcel = self._another(parcel, size)
        parcel.values += values
        parcel.waited += len(values)
        parcel.bytes += size
        waiter: asyncio.Future[Receipt] = self._loop.create_future()
        parcel.waiters.append((waiter, len(parcel) - 1))
        if parcel.bytes > self._cut_bytes:
            self._cut(parcel)
        return waiter

    def put_gathered(self, messages: deque[tuple[Any, ...]]) -> bool:
        """Put the queued messages without waiting. Return False if the buffer is full.

        If a message is invalid, `flush` raises the error.
        """
        for _ in range(len(messages)):
            if self._bytes >= BUFFER_BYTES:
                return False
            try:
                topic, value, key, headers = messages.popleft()
                parcel = self.open.get(topic)
                if parcel is None:
                    parcel = self._parcel(topic, key)
                if not parcel.take(value, key, headers):
                    self._add(parcel, value, key, headers)
            except Exception as error:  # noqa: BLE001  # flush raises it
                self._failure = self._failure or error
        return True

    def _parcel(self, topic: str, key: bytes | None, timing: Timing | None = None) -> Parcel:
        """Return the open batch for a message with this key."""
        if self.routers and (router := self.routers.get(topic)) is not None:
            return self._routed(router, router.choose(key), timing)
        where = topic if timing is None else (topic, timing)
        return self.open.get(where) or self._begin(topic, timing)

    def _routed(self, router: Router, partition: int, timing: Timing | None) -> Parcel:
        """Return the open batch of a partition."""
        topic = router.names[partition]
        where = topic if timing is None else (topic, timing)
        parcel = self.open.get(where) or self._begin(topic, timing)
        parcel.router, parcel.partition = router, partition
        return parcel

    def _begin(self, topic: str, timing: Timing | None = None) -> Parcel:
        if self.broken is not None:
            raise self.broken
        if self._bytes >= BUFFER_BYTES:
            full = Overloaded(f"bytes in flight ({self._bytes:,}, limit {BUFFER_BYTES:,})")
            raise full.reworded(
                remedy="await flush() or wait_for_space(), or use put(), which waits"
            )
        check_topic(topic)
        return self._fresh(topic, timing)

    def _fresh(self, topic: str, timing: Timing | None = None) -> Parcel:
        many = len(self.open) % MANY == MANY - 1
        if many and sum(each.bytes for each in self.open.values()) > BUFFER_BYTES // 2:
            self._cut_all()  # The buffer limit does not cover open batches.
        parcel = Parcel(topic, self._most, self._cut_bytes, timing)
        if timing is not None or self._lasting:
            self._keep_order(parcel)
        self.open[parcel.key] = parcel
        if not self._due:
            self._due = True
            self._loop.call_soon(self._turn_ends)
        return parcel

    def _keep_order(self, parcel: Parcel) -> None:
        """Send the topic's open batch that the new one must not overtake."""
        topic, timing = parcel.topic, parcel.timing
        if timing is not None and timing.delays:
            return
        for earlier in (self.open.get(topic), self._lasting.get(topic)):
            if earlier is not None:
                self._cut(earlier)
        if timing is not None:
            self._lasting[topic] = parcel

    def _add(
        self,
        parcel: Parcel,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        waiter: asyncio.Future[Receipt] | None = None,
    ) -> None:
        """Add a message to `parcel`, or to a new batch if `parcel` is full."""
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
            parcel.waited += 1
        if parcel.bytes > self._cut_bytes:
            self._cut(parcel)

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
                raise PayloadTooLarge("bytes", self._most).reworded(str(error)) from None
        return parcel

    # -- out --

    def _another(self, parcel: Parcel, size: int) -> Parcel:
        """Send a full batch and return a new one. Raise an error if no batch can be that large."""
        if size > self._most:
            raise self._too_large(size - MESSAGE_BYTES)
        self._cut(parcel)
        another = self._fresh(parcel.topic, parcel.timing)
        another.router, another.partition = parcel.router, parcel.partition
        return another

    def _too_large(self, size: int) -> PayloadTooLarge:
        most = self._most - MESSAGE_BYTES
        message = f"the message is {size:,} bytes long (limit {most:,})"
        remedy = SPLIT if most == PAYLOAD_BYTES_MAX else ""
        return PayloadTooLarge("bytes", most).reworded(message, remedy)

    def _turn_ends(self) -> None:
        self._due = False
        if len(self._flying) < IN_FLIGHT:
            self._cut_all()
            self._send()

    def _cut_all(self) -> None:
        for parcel in list(self.open.values()):
            self._cut(parcel)

    def _cut(self, parcel: Parcel) -> None:
        del self.open[parcel.key]
        if self._lasting and self._lasting.get(parcel.topic) is parcel:
            del self._lasting[parcel.topic]
        count = len(parcel)
        if not count:
            return
        try:
            batch = parcel.build(self._zstd)
        except Exception as error:  # noqa: BLE001  # flush or the waiters raise it
            message = f"topic {parcel.topic!r}: cannot pack {count} messages: {error!r}"
            self._refused(parcel, OncecastError(message))
            return
        self._singles = self._singles + 1 if count == 1 else 0
        self._bytes += parcel.bytes
        if parcel.topic in self.routers.returning:
            self._tickets += 1
            again = Returned(self._tickets, parcel, batch, parcel.timing)
            self.routers.returning[parcel.topic].append(again)
            return
        if parcel.router is not None:
            parcel.router.sent(parcel.partition)
        self._tickets += 1
        self._flying[self._tickets] = parcel
        if self._watching is None and self._patience < inf:
            self._watching = self._loop.call_later(self._patience / 10, self._watch)
        create = parcel.router is None
        produce = Produce(self._tickets, parcel.topic, count, batch, parcel.timing, create)
        self._request(produce)

    # -- a full disk --

    @property
    def _disk_is_full(self) -> bool:
        busy = self._busy()
        return isinstance(busy, Busy) and busy.what == DISK

    def _watch(self) -> None:
        """Fail puts without a timeout that have waited too long for space on a full disk.

        Other failures are temporary, but a disk may stay full until an operator intervenes.
        """
        self._watching = None
        if not self._flying:
            return
        self._watching = self._loop.call_later(self._patience / 10, self._watch)
        if self._disk_is_full:
            before = time.time_ns() // 1000 - self._patience * 1e6
            for parcel in self._flying.values():
                if parcel.time <= before:
                    self._give_up(parcel)

    def _give_up(self, parcel: Parcel) -> None:
        waiters = [each for each, _ in parcel.waiters if each not in self._limited]
        if any(not each.done() for each in waiters):
            parcel.waited = -1  # so that `flush` raises an error if the batch is refused later
            fail(waiters, self._not_stored_within(parcel.topic, self._patience))

    def _not_stored_within(self, topic: str, timeout: float) -> OncecastError:
        message = f"topic {topic!r}: the message was not stored within {timeout:g} s"
        return self.late(message, STILL_IN_FLIGHT, in_flight=True)

    # -- answers --

    def stored(self, event: Stored) -> None:
        parcel = self._landed(event.ticket)
        if parcel is None:
            return
        offset, kept = event.offset, event.kept
        for waiter, index in parcel.waiters:
            if not waiter.done():
                where = offset + index if offset >= 0 else -1
                waiter.set_result(
                    Receipt(where, kept)
                    if parcel.router is None
                    else placed(where, kept, parcel.partition)
                )

    def not_stored(self, event: NotStored) -> None:
        if isinstance(event.why, Partitioned) and event.batch:
            self._divide(event, event.why)
            return
        parcel = self._landed(event.ticket)
        error = event.why.raised()
        if parcel is not None and parcel.router is not None and isinstance(error, NoSuchTopic):
            self.routers.forget(parcel.router)
            error = NoSuchTopic(parcel.router.topic)
        self._refused(parcel, error)

    # -- topics that turn out to have partitions --

    def _divide(self, event: NotStored, why: Partitioned) -> None:
        """Put the messages of a refused batch to the partitions of its topic.

        Wait until all batches of the topic have been refused, so that they keep their order.
        """
        topic = why.topic
        parcel = self._flying.pop(event.ticket, None)
        returning = self.routers.returning.setdefault(topic, [])
        returning.append(Returned(event.ticket, parcel, event.batch, event.timing))
        if any(each.topic == topic for each in self._flying.values()):
            return
        for open_ in [each for each in self.open.values() if each.topic == topic]:
            self._cut(open_)
        del self.routers.returning[topic]
        self.routers.learn(topic, why.partitions)
        returning.sort(key=lambda each: each.ticket)
        for each in returning:
            self._put_again(topic, each)
        self._cut_all()
        for each in returning:
            if each.parcel is None:
                self._left -= 1
            else:
                self._bytes -= each.parcel.bytes
        self._flushing = [(self._tickets, waiter) for _, waiter in self._flushing]
        self._tell_flushed()

    def _put_again(self, topic: str, returned: Returned) -> None:
        router, waiters = self.routers.get(topic), returned.waiters()
        assert router is not None
        # The waiter of `put_many` waits for several messages, so they go to one partition.
        without_key = router.choose(None)
        found = messages(returned.batch, topic=topic, offset=0, producer="", sequence=0)
        for index, each in enumerate(found):
            partition = without_key if each.key is None else router.choose(each.key)
            parcel = self._routed(router, partition, returned.timing)
            self._add(parcel, each.value, each.key, each.headers or None, waiters.get(index))

    def _refused(self, parcel: Parcel | None, error: OncecastError) -> None:
        """Raise `error` in the batch's waiters, and in `flush` if a message has no waiter."""
        waiters = [] if parcel is None else [waiter for waiter, _ in parcel.waiters]
        if parcel is None or parcel.silent or any(waiter.cancelled() for waiter in waiters):
            self._failure = self._failure or error
        fail(waiters, error)

    def _landed(self, ticket: int) -> Parcel | None:
        parcel = self._flying.pop(ticket, None)
        if parcel is None:  # from an earlier process, so only `flush` waits for it
            self._left -= 1
            self._tell_flushed()
            return None
        self._bytes -= parcel.bytes
        if self.open and not self._due and len(self._flying) < IN_FLIGHT:
            self._cut_all()
        if self._waiting_for_space and self._bytes < BUFFER_BYTES // 2:
            wake(self._waiting_for_space)
            self._waiting_for_space.clear()
        if self._flushing:
            self._tell_flushed()
        return parcel

    def _tell_flushed(self) -> None:
        """Wake the flushes whose batches are all stored."""
        if self.routers.returning:
            return
        oldest = 0 if self._left > 0 else next(iter(self._flying), self._tickets + 1)
        wake([waiter for ticket, waiter in self._flushing if ticket < oldest])
        self._flushing = [each for each in self._flushing if each[0] >= oldest]

    @property
    def left(self) -> bool:
        """Return whether any message is not stored yet."""
        return bool(self.open or self._flying or self._left > 0 or self.routers.returning)

    async def flush(self, timeout: float | None) -> None:
        """Wait until all puts are stored. Raise the first error from a put without a waiter."""
        self._cut_all()
        if self.left and self.broken is None:
            waiter = self._loop.create_future()
            self._flushing.append((self._tickets, waiter))
            remedy = "the messages are still in flight; don't resend them, call flush() again"
            await self._wait(waiter, timeout, "not all messages are stored", remedy)
        self.raise_failure()
        if self.broken is not None:
            raise self.broken

    def raise_failure(self) -> None:
        """Raise the first error from a put without a waiter, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def wait_for_space(self, timeout: float | None = None) -> float | None:
        """Wait for buffer space. Return the remaining timeout, or raise an error if it expires."""
        end = None if timeout is None else self._loop.time() + timeout
        while self._bytes >= BUFFER_BYTES and self.broken is None:
            waiter = self._loop.create_future()
            self._waiting_for_space.append(waiter)
            await self._wait(waiter, timeout, "still no buffer space", NOT_TAKEN)
            timeout = None if end is None else max(0.0, end - self._loop.time())
        return timeout

    async def _wait(
        self, waiter: asyncio.Future[None], timeout: float | None, what: str, remedy: str
    ) -> None:
        limit = self._patience if timeout is None else timeout
        try:
            while not (await asyncio.wait((waiter,), timeout=None if limit == inf else limit))[0]:
                if timeout is not None or self._disk_is_full:
                    raise self.late(f"{what} after {limit:g} s", remedy)
            waiter.result()
        finally:
            waiter.cancel()

    def late(self, message: str, remedy: str, *, in_flight: bool = False) -> OncecastError:
        """Return TimedOut, or Overloaded with the reason if a node is too busy to store puts."""
        busy = self._busy()
        error: OncecastError = TimedOut(message)
        if busy is not None:
            error = busy.raised().within(message)
        error.remedy, error.in_flight = remedy, in_flight
        return error

    def fail(self, error: OncecastError) -> None:
        """Raise `error` in all waiting and all later puts."""
        self.broken = error
        parcels = [*self.open.values(), *self._flying.values(), *self.routers.returned()]
        self.open.clear()
        self.routers.returning.clear()
        self._lasting.clear()
        self._flying.clear()
        self._bytes = 0
        for parcel in parcels:
            self._refused(parcel, error)
        wake([*self._waiting_for_space, *(waiter for _, waiter in self._flushing)])


def only_the_rest(taken: int) -> str:
    return (
        f"the first {taken} messages are still in flight; call flush() to wait for them, and put "
        "only the rest"
    )


def fail(waiters: list[asyncio.Future[Any]], error: OncecastError) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(error)


def abandon(waiters: list[asyncio.Future[Any]]) -> None:
    """Cancel the futures without warnings about unretrieved errors."""
    for waiter in waiters:
        if not waiter.cancel() and not waiter.cancelled():
            waiter.exception()


def wake(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
