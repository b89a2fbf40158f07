"""Collect the outcomes of several callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Gather(Generic[T]):
    """Calls `done` with all results, in order, as soon as the last result arrives."""

    def __init__(self, count: int, done: Callable[[tuple[T, ...]], None]) -> None:
        self._results: dict[int, T] = {}
        self._count, self._done = count, done
        if not count:
            done(())

    def slot(self, number: int) -> Callable[[T], None]:
        """Return the callback for result `number`."""

        def put(result: T) -> None:
            self._results[number] = result
            if len(self._results) == self._count:
                self._done(tuple(self._results[each] for each in range(self._count)))

        return put
