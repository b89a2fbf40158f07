"""A value that tasks can wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Observable(Generic[T]):
    """A value that tasks can watch. A slow task can miss values, but never the last one."""

    def __init__(self, value: T) -> None:
        self.value = value
        self._changed = asyncio.Event()

    def set(self, value: T) -> None:
        self.value = value
        self._changed.set()
        self._changed = asyncio.Event()

    async def watch(self) -> AsyncIterator[T]:
        """Yield the current value, then each later value."""
        while True:
            value, changed = self.value, self._changed
            yield value
            if changed is self._changed:
                await changed.wait()

    async def wait(self, accepts: Callable[[T], bool]) -> T:
        while not accepts(self.value):
            await self._changed.wait()
        return self.value
