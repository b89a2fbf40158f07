"""The reader of a stream as the application uses it."""

# ruff: noqa: ASYNC109  # each method defines what happens when its timeout expires

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Self

from oncecast.kernel.protocol import NodeId
from oncecast.streams.endpoint import Endpoint
from oncecast.streams.protocols import reading
from oncecast.streams.protocols.cache import Sample
from oncecast.streams.protocols.events import CloseReader, Side, Took
from oncecast.streams.protocols.policies import QoS

if TYPE_CHECKING:
    from oncecast.streams.host import Host


class Reader(Endpoint):
    """A reader, created by `node.stream(...).reader()`. `async for` takes values from its cache."""

    side: Side = "reader"
    counterparts = "writers"

    def __init__(self, node: Host, name: str, qos: QoS) -> None:
        super().__init__(node, name, qos)
        self._loop = asyncio.get_running_loop()
        self._low = qos.samples_max // 2  # number of values at which waiting writers may continue
        self._waiting: list[asyncio.Future[None]] = []  # one for each task that waits for a value

    def opened(self, pure: reading.Reader) -> None:
        self._pure, self._cache = pure, pure.cache

    def __len__(self) -> int:
        """Return the number of values in the cache."""
        return len(self._cache)

    @property
    def writers(self) -> tuple[NodeId, ...]:
        """Return the matched writers."""
        return self._matched.value

    async def wait_for_writers(self, count: int = 1, timeout: float = 30.0) -> tuple[NodeId, ...]:
        """Wait until `count` writers are matched, and return them.

        Raise NotMatched after `timeout` seconds. The error lists incompatible writers.
        """
        return await self._wait_for(count, timeout)

    # -- reading --

    def keys(self) -> list[bytes]:
        return self._cache.keys()

    def read(self, key: bytes | None = None, *, unread: bool = False) -> tuple[Sample, ...]:
        """Return the cached values, or those of one key, and mark them as read.

        With `unread`, return only values that were not read before.
        """
        self._check_open()
        return self._cache.read(key, unread=unread)

    def take(self, key: bytes | None = None, *, unread: bool = False) -> tuple[Sample, ...]:
        """Remove and return the cached values, or those of one key.

        With `unread`, take only values that were not read before.
        """
        self._check_open()
        found = self._cache.take(key, unread=unread)
        if self._pure.blocked:
            self._note_taken()
        return found

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait for an unread value. Return False if none arrives within `timeout` seconds."""
        self._check_open()
        try:
            # Without a timeout, avoid `asyncio.timeout`, which delays the wake-up.
            async with asyncio.timeout(timeout) if timeout is not None else nullcontext():
                while not self._cache.has_unread:
                    await self._arrival()
                    self._check_open()
        except TimeoutError:
            return False
        return True

    async def __aiter__(self) -> AsyncIterator[Sample]:
        """Take and yield values one by one, until the reader is closed."""
        cache, pure = self._cache, self._pure
        self._check_open()
        while not self.closed:
            while len(cache):
                sample = cache.take_first()
                if pure.blocked:
                    self._note_taken()
                yield sample
            await self._arrival()
            if not self.closed:
                self._check_open()

    async def take_some(self, count: int) -> list[Sample]:
        """Take 1 to `count` values. Wait for the first, or return [] if the reader is closed."""
        cache = self._cache
        while not len(cache) and not self.closed:
            await self._arrival()
            if not self.closed:
                self._check_open()
        found = [cache.take_first() for _ in range(min(count, len(cache)))]
        if self._pure.blocked:
            self._note_taken()
        return found

    async def _arrival(self) -> None:
        """Wait until a value arrives or the reader is closed."""
        arrival = self._loop.create_future()
        self._waiting.append(arrival)
        await arrival

    def _note_taken(self) -> None:
        if len(self._cache) <= self._low:
            self._node.request(Took(self.name))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._node.streams.forget(self)
            self._node.request(CloseReader(self.name))
            self.arrived()

    async def ended(self) -> None:
        """Wait until the background work of a closed reader has ended."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def arrived(self) -> None:
        for arrival in self._waiting:
            if not arrival.done():
                arrival.set_result(None)
        self._waiting.clear()
