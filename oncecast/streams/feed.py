"""A value that changes, and those who want to hear of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Feed(Generic[T]):
    """Whoever is slow misses what was replaced meanwhile, and never the last value."""

    def __init__(self, value: T) -> None:
        self.value = value
        self._changed = asyncio.Event()

    def set(self, value: T) -> None:
        self.value = value
        self._changed.set()
        self._changed = asyncio.Event()

    async def watch(self) -> AsyncIterator[T]:
        """The value, and each that comes later."""
        while True:
            value, changed = self.value, self._changed
            yield value
            if changed is self._changed:
                await changed.wait()

    async def wait(self, right: Callable[[T], bool]) -> T:
        while not right(self.value):
            await self._changed.wait()
        return self.value
