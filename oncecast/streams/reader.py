"""The reader of a stream on a node, and what is in its cache."""

# ruff: noqa: ASYNC109  # what happens when time is over is part of the interface

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Self

from oncecast.kernel.protocol import NodeId
from oncecast.streams.endpoint import End
from oncecast.streams.protocols import reading
from oncecast.streams.protocols.cache import Sample
from oncecast.streams.protocols.events import CloseReader, Side, Took
from oncecast.streams.protocols.policies import QoS

if TYPE_CHECKING:
    from oncecast.streams.host import Host


class Reader(End):
    """Made by `node.stream(...).reader()`. What comes is in its cache; `async for` takes it."""

    side: Side = "reader"
    others = "writers"

    def __init__(self, node: Host, name: str, qos: QoS) -> None:
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
            # Without a timeout there is nothing to set up, and whoever waits is awake sooner.
            async with asyncio.timeout(timeout) if timeout is not None else nullcontext():
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
                sample = cache.take_first()
                if pure.blocked:
                    self._took()
                yield sample
            await self._arrival()
            if not self.closed:
                self._check_open()

    async def take_some(self, count: int) -> list[Sample]:
        """As many as there are, at least one; nothing once it is closed."""
        cache = self._cache
        while not len(cache) and not self.closed:
            await self._arrival()
            if not self.closed:
                self._check_open()
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

    async def ended(self) -> None:
        """All that it has caused is over, once it is closed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def arrived(self) -> None:
        for arrival in self._waiting:
            if not arrival.done():
                arrival.set_result(None)
        self._waiting.clear()
