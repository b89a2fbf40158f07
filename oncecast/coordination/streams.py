"""What an application sees of a stream: its writer and its reader on this node.

Values that are written in one turn of the loop leave together, so a call costs little more than an
entry in a list.
"""

# ruff: noqa: ASYNC109  # what happens when time is over is part of the interface

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sized
from types import TracebackType
from typing import TYPE_CHECKING, Self

from oncecast.coordination.errors import NoRoom, NotMatched, NotOpen, NotReceived, Stopped
from oncecast.coordination.feed import Feed
from oncecast.kernel.protocol import NodeId, Value
from oncecast.qos import reading, streams, writing
from oncecast.qos.cache import Sample
from oncecast.qos.events import (
    STREAMS_MAX,
    Arrived,
    CloseReader,
    CloseWriter,
    DeadlineMissed,
    LimitReached,
    Liveliness,
    Matched,
    Mismatched,
    NotWritten,
    OpenReader,
    OpenWriter,
    SamplesLost,
    SamplesRejected,
    Side,
    Stable,
    Took,
    Unmatched,
    Write,
    Written,
)
from oncecast.qos.policies import QoS

if TYPE_CHECKING:
    from oncecast.coordination.node import Node

GATHERED = 512  # values that leave together, though more are written in a turn
GATHERED_BYTES = 1 << 17
VALUE_BYTES_MAX = 16 << 20
EVENTS_MAX = 1000  # that nobody has looked at; then the oldest go
NAME_BYTES_MAX = 255
LINGER = 5.0  # seconds that a writer which is closed gives its readers

StreamEvent = (
    Matched
    | Mismatched
    | Unmatched
    | DeadlineMissed
    | Liveliness
    | LimitReached
    | SamplesLost
    | SamplesRejected
)


class End:
    """What a writer and a reader of a stream have in common."""

    side: Side
    others: str

    def __init__(self, node: Node, name: str, qos: QoS) -> None:
        self.name, self.qos = name, qos
        self._node = node
        self._matched: Feed[tuple[NodeId, ...]] = Feed(())
        self._mismatched: dict[NodeId, tuple[str, ...]] = {}
        self._events: deque[StreamEvent] = deque(maxlen=EVENTS_MAX)
        self._happened: Feed[int] = Feed(0)
        self.closed = False

    # -- what happens to it --

    async def next_event(self, timeout: float | None = None) -> StreamEvent | None:
        """What has happened and nobody has looked at, oldest first; None if nothing did in time."""
        try:
            async with asyncio.timeout(timeout):
                await self._node.unless_stopped(self._happened.wait(lambda _: bool(self._events)))
        except TimeoutError:
            return None
        return self._events.popleft()

    async def events(self) -> AsyncIterator[StreamEvent]:
        while (event := await self.next_event()) is not None:
            yield event

    def heard(self, event: StreamEvent) -> None:
        match event:
            case Matched():
                self._mismatched.pop(event.peer, None)
                self._matched.set((*self._matched.value, event.peer))
            case Unmatched():
                self._matched.set(tuple(each for each in self._matched.value if each != event.peer))
            case Mismatched():
                self._mismatched[event.peer] = event.qualities
            case _:
                pass
        self._events.append(event)
        self._happened.set(self._happened.value + 1)

    async def _wait_for(self, count: int, timeout: float) -> tuple[NodeId, ...]:
        matched = self._matched
        try:
            async with asyncio.timeout(timeout):
                enough = matched.wait(lambda peers: len(peers) >= count)
                return await self._node.unless_stopped(enough)
        except TimeoutError:
            wanted = f"{count} {self.others} for {timeout:g} s"
            raise NotMatched(
                self.name, wanted, len(matched.value), self._mismatched, self._node.streams.names()
            ) from None

    def _check_open(self) -> None:
        if self._node.stopping:
            raise Stopped
        if self.closed:
            raise NotOpen(self.name, f"its {self.side} is closed; open another one")


class Writer(End):
    """Made by `node.stream(...).writer()`; `async with` it, or close it."""

    side: Side = "writer"
    others = "readers"

    def __init__(self, node: Node, name: str, qos: QoS) -> None:
        super().__init__(node, name, qos)
        self._loop = asyncio.get_running_loop()
        self._values: list[bytes] = []  # that have not been given to the protocol
        self._keys: list[bytes] = []
        self._bytes = 0
        self.room = 0  # values that may be gathered before the protocol must be asked
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._stable: Feed[int] = Feed(1)

    def opened(self, pure: writing.Writer) -> None:
        self._pure = pure
        self._look_for_room()

    @property
    def readers(self) -> tuple[NodeId, ...]:
        """Who is matched."""
        return self._matched.value

    async def wait_for_readers(self, count: int = 1, timeout: float = 30.0) -> tuple[NodeId, ...]:
        """Raises NotMatched, which says who is incompatible and in what."""
        return await self._wait_for(count, timeout)

    # -- writing --

    async def write(self, value: bytes, key: bytes = b"") -> None:
        """Waits only if values that readers must have fill the cache; raises NoRoom then."""
        if type(value) is not bytes or type(key) is not bytes or len(value) > VALUE_BYTES_MAX:
            self.refuse(value, key)
        values = self._values
        if len(values) >= self.room:
            await self._write_one(value, key)
            return
        values.append(value)
        self._keys.append(key)
        self._bytes += len(value)
        if len(values) == 1:
            self._loop.call_soon(self._leave)
        elif len(values) >= GATHERED or self._bytes >= GATHERED_BYTES:
            self._leave()
            await asyncio.sleep(0)  # a loop that only writes would keep all others from working

    def refuse(self, value: bytes, key: bytes) -> None:
        if type(value) is not bytes or type(key) is not bytes:
            raise TypeError(f"stream {self.name!r}: values and keys are bytes; encode them")
        fact = f"a value of {len(value)} bytes; {VALUE_BYTES_MAX} are allowed, send it in parts"
        raise NoRoom(self.name, fact)

    def write_all(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Values and keys that were checked, no more than there is room for."""
        for value, key in pairs:
            self._values.append(value)
            self._keys.append(key)
            self._bytes += len(value)
            if len(self._values) >= GATHERED or self._bytes >= GATHERED_BYTES:
                self._leave()
        self._leave()

    def _leave(self) -> None:
        """What was gathered goes to the protocol; there is room for it."""
        values, keys = tuple(self._values), tuple(self._keys)
        if not values:
            return
        self._values.clear()
        self._keys.clear()
        self._bytes = 0
        if keys.count(keys[0]) == len(keys):
            keys = keys[:1]
        self._node.request(Write(self.name, 0, keys, values))
        self._look_for_room()

    def _look_for_room(self) -> None:
        """It may be less than there is: then values are given to the protocol one by one."""
        if self.closed or self._node.stopping or self._pure.waits:
            self.room = 0
        elif self._pure.may_wait:
            cache = self._pure.cache
            keys = self.qos.keys_max - len(cache.keys())
            self.room = min(keys, self.qos.samples_max - len(cache))
        else:
            self.room = GATHERED

    async def _write_one(self, value: bytes, key: bytes) -> None:
        self._check_open()
        self._leave()
        ticket = self._node.next_ticket()
        answer = self._answers[ticket] = self._loop.create_future()
        try:
            self._node.request(Write(self.name, ticket, (key,), (value,)))
            if answer.done():
                answer.result()
            else:
                await self._node.unless_stopped(answer)
        finally:
            del self._answers[ticket]
            self._look_for_room()

    async def flush(self, timeout: float | None = None) -> None:
        """Waits until all reliable readers have all that was written. Raises NotReceived."""
        self._check_open()
        self._leave()
        end = self._pure.next
        try:
            async with asyncio.timeout(timeout):
                await self._node.unless_stopped(self._stable.wait(lambda number: number >= end))
        except TimeoutError:
            left = end - self._stable.value
            fact = f"after {timeout:g} s readers lack {left} values; wait longer"
            raise NotReceived(self.name, fact) from None

    async def close(self, timeout: float = LINGER) -> None:
        """Readers get so much time for what was written. Raises NotReceived."""
        if not self.closed:
            try:
                await self.flush(timeout)
            finally:
                self.abandon()

    def abandon(self) -> None:
        """Close it, whatever readers have."""
        self._leave()
        self.closed, self.room = True, 0
        self._node.streams.forget(self)
        self._node.request(CloseWriter(self.name))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
        else:
            self.abandon()

    def answered(self, event: Written | NotWritten | Stable) -> None:
        if isinstance(event, Stable):
            self._stable.set(event.number)
            return
        answer = self._answers.get(event.ticket)
        if answer is None or answer.done():
            return
        if isinstance(event, Written):
            answer.set_result(None)
        else:
            answer.set_exception(NoRoom(self.name, event.why))


class Reader(End):
    """Made by `node.stream(...).reader()`. What comes is in its cache; `async for` takes it."""

    side: Side = "reader"
    others = "writers"

    def __init__(self, node: Node, name: str, qos: QoS) -> None:
        super().__init__(node, name, qos)
        self._loop = asyncio.get_running_loop()
        self._low = qos.samples_max // 2  # writers that wait are let go on when it is reached
        self._waiting: list[asyncio.Future[None]] = []  # for something to arrive

    def opened(self, pure: reading.Reader) -> None:
        self._pure, self._cache = pure, pure.cache

    def __len__(self) -> int:
        """Values in the cache."""
        return len(self._cache)

    @property
    def writers(self) -> tuple[NodeId, ...]:
        """Who is matched."""
        return self._matched.value

    async def wait_for_writers(self, count: int = 1, timeout: float = 30.0) -> tuple[NodeId, ...]:
        """Raises NotMatched, which says who is incompatible and in what."""
        return await self._wait_for(count, timeout)

    # -- reading --

    def keys(self) -> list[bytes]:
        return self._cache.keys()

    def read(self, key: bytes | None = None, *, unread: bool = False) -> tuple[Sample, ...]:
        """What is in the cache, or its history of a key; it stays, and counts as read."""
        self._check_open()
        return self._cache.read(key, unread=unread)

    def take(self, key: bytes | None = None, *, unread: bool = False) -> tuple[Sample, ...]:
        """The same, and it goes."""
        self._check_open()
        found = self._cache.take(key, unread=unread)
        if self._pure.blocked:
            self._took()
        return found

    async def wait(self, timeout: float | None = None) -> bool:
        """For something unread; whether there is any before time is over."""
        self._check_open()
        try:
            async with asyncio.timeout(timeout):
                while not self._cache.has_unread:
                    await self._arrival()
                    self._check_open()
        except TimeoutError:
            return False
        return True

    async def __aiter__(self) -> AsyncIterator[Sample]:
        """Takes one after the other, until it is closed."""
        cache, pure = self._cache, self._pure
        self._check_open()
        while not self.closed:
            while len(cache):
                yield cache.take_first()
                if pure.blocked:
                    self._took()
            await self._arrival()
            if self._node.stopping:
                raise Stopped

    async def take_some(self, count: int) -> list[Sample]:
        """As many as there are, at least one; nothing once it is closed."""
        cache = self._cache
        while not len(cache) and not self.closed:
            await self._arrival()
            if self._node.stopping:
                raise Stopped
        found = [cache.take_first() for _ in range(min(count, len(cache)))]
        if self._pure.blocked:
            self._took()
        return found

    async def _arrival(self) -> None:
        """Of something, or of the end."""
        arrival = self._loop.create_future()
        self._waiting.append(arrival)
        await arrival

    def _took(self) -> None:
        if len(self._cache) <= self._low:
            self._node.request(Took(self.name))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._node.streams.forget(self)
            self._node.request(CloseReader(self.name))
            self.arrived()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def arrived(self) -> None:
        for arrival in self._waiting:
            if not arrival.done():
                arrival.set_result(None)
        self._waiting.clear()


class Stream:
    """A name and qualities; each node has at most one writer and one reader of it."""

    def __init__(self, streams: Streams, name: str, qos: QoS) -> None:
        self._streams, self.name, self.qos = streams, name, qos

    def writer(self) -> Writer:
        """Raises NotOpen if there is one already."""
        return self._streams.open_writer(self.name, self.qos)

    def reader(self) -> Reader:
        """Raises NotOpen if there is one already."""
        return self._streams.open_reader(self.name, self.qos)


class Streams:
    """The writers and readers of a node, by the names of their streams."""

    def __init__(self, node: Node, pure: streams.Streams) -> None:
        self._node, self._pure = node, pure
        self.writers: dict[str, Writer] = {}
        self.readers: dict[str, Reader] = {}

    def open_writer(self, name: str, qos: QoS) -> Writer:
        self._check(name, "writer", self.writers)
        writer = self.writers[name] = Writer(self._node, name, qos)
        self._node.request(OpenWriter(name, qos))
        writer.opened(self._pure.writers[name])
        return writer

    def open_reader(self, name: str, qos: QoS) -> Reader:
        self._check(name, "reader", self.readers)
        reader = self.readers[name] = Reader(self._node, name, qos)
        self._node.request(OpenReader(name, qos))
        reader.opened(self._pure.readers[name])
        return reader

    def _check(self, name: str, side: Side, there: Sized) -> None:
        if self._node.stopping:
            raise Stopped
        if name in (self.writers if side == "writer" else self.readers):
            raise NotOpen(name, f"it has a {side} here already; use that, or close it first")
        if len(there) >= STREAMS_MAX:
            raise NotOpen(name, f"{STREAMS_MAX} others are open; close one first")

    def forget(self, end: Writer | Reader) -> None:
        ends = self.writers if isinstance(end, Writer) else self.readers
        ends.pop(end.name, None)

    def names(self) -> list[str]:
        """Of all streams that somebody has opened, as far as this node knows."""
        theirs = [
            each for peer in self._pure.peers.values() for each in peer.writers + peer.readers
        ]
        return sorted({each.stream for each in theirs} | {*self.writers, *self.readers})

    async def close(self) -> None:
        """Readers elsewhere get some time for what was written here."""
        writers = list(self.writers.values())
        await asyncio.gather(*(each.close() for each in writers), return_exceptions=True)

    def stopped(self) -> None:
        for reader in self.readers.values():
            reader.arrived()

    def hear(self, event: Value) -> None:
        match event:
            case Arrived(stream):
                if stream in self.readers:
                    self.readers[stream].arrived()
            case Written() | NotWritten() | Stable():
                if event.stream in self.writers:
                    self.writers[event.stream].answered(event)
            case Liveliness() | SamplesLost() | SamplesRejected():
                if event.stream in self.readers:
                    self.readers[event.stream].heard(event)
            case Matched() | Mismatched() | Unmatched() | DeadlineMissed() | LimitReached():
                ends = self.writers if event.side == "writer" else self.readers
                if event.stream in ends:
                    ends[event.stream].heard(event)
            case _:
                pass  # what the protocols tell beside that, nobody has asked for


def checked_name(name: str) -> str:
    if not 0 < len(name.encode(errors="replace")) <= NAME_BYTES_MAX:
        raise NotOpen(name, f"a name has 1 to {NAME_BYTES_MAX} bytes; choose another one")
    return name
