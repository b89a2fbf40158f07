"""Streams for programs without a loop: the same writers and readers, called from any thread."""

# ruff: noqa: ASYNC109  # what happens when time is over is part of the interface

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Self

from oncecast.kernel.protocol import NodeId
from oncecast.streams import reader, streams, writer
from oncecast.streams.endpoint import StreamEvent
from oncecast.streams.protocols.cache import Sample
from oncecast.streams.writer import LINGER, VALUE_BYTES_MAX

if TYPE_CHECKING:
    from oncecast.streams.host import Thread

TAKEN = 512  # values at a time, for those who iterate


class Stream:
    def __init__(self, thread: Thread, of: streams.Stream) -> None:
        self._thread, self._of = thread, of

    def writer(self) -> Writer:
        return Writer(self._thread, self._thread.read(self._of.writer))

    def reader(self) -> Reader:
        return Reader(self._thread, self._thread.read(self._of.reader))


class Writer:
    """`with` it, or close it. What is written is gathered for the node's thread."""

    def __init__(self, thread: Thread, of: writer.Writer) -> None:
        self._thread, self._of = thread, of
        self._given: deque[tuple[bytes, bytes]] = deque()
        self._lock = Lock()  # how much room there is must not change while values are given
        self._woken = False

    @property
    def readers(self) -> tuple[NodeId, ...]:
        return self._of.readers

    def wait_for_readers(self, count: int = 1, timeout: float = 30.0) -> tuple[NodeId, ...]:
        return self._thread.call(self._of.wait_for_readers(count, timeout))

    def write(self, value: bytes, key: bytes = b"") -> None:
        """Waits only if values that readers must have fill the cache; raises NoRoom then."""
        if type(value) is not bytes or type(key) is not bytes or len(value) > VALUE_BYTES_MAX:
            self._of.refuse(value, key)
        with self._lock:
            given = self._given
            if len(given) < self._of.room:
                given.append((value, key))
                if not self._woken:
                    self._woken = True
                    self._thread.soon(self._pass_on)
                return
        self._thread.call(self._write_slowly(value, key))

    def _pass_on(self) -> None:
        """In the node's thread."""
        with self._lock:
            self._woken = False
            given, self._given = self._given, deque()
            self._of.write_all(given)

    async def _write_slowly(self, value: bytes, key: bytes) -> None:
        self._pass_on()
        await self._of.write(value, key)

    async def _flush(self, timeout: float | None) -> None:
        self._pass_on()
        await self._of.flush(timeout)

    async def _close(self, timeout: float) -> None:
        self._pass_on()
        await self._of.close(timeout)

    def flush(self, timeout: float | None = None) -> None:
        self._thread.call(self._flush(timeout))

    def next_event(self, timeout: float | None = None) -> StreamEvent | None:
        return self._thread.call(self._of.next_event(timeout))

    def close(self, timeout: float = LINGER) -> None:
        self._thread.call(self._close(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._thread.read(self._of.abandon)


class Reader:
    """`for sample in reader` takes what comes, until it is closed."""

    def __init__(self, thread: Thread, of: reader.Reader) -> None:
        self._thread, self._of = thread, of
        self._taken: deque[Sample] = deque()  # by a loop that has ended since

    @property
    def writers(self) -> tuple[NodeId, ...]:
        return self._of.writers

    def wait_for_writers(self, count: int = 1, timeout: float = 30.0) -> tuple[NodeId, ...]:
        return self._thread.call(self._of.wait_for_writers(count, timeout))

    def __len__(self) -> int:
        return len(self._taken) + self._thread.read(lambda: len(self._of))

    def keys(self) -> list[bytes]:
        left = [each.key for each in self._taken]
        return list(dict.fromkeys(left + self._thread.read(self._of.keys)))

    def read(self, key: bytes | None = None, *, unread: bool = False) -> tuple[Sample, ...]:
        return self._left(key) + self._thread.read(lambda: self._of.read(key, unread=unread))

    def take(self, key: bytes | None = None, *, unread: bool = False) -> tuple[Sample, ...]:
        left = self._left(key)
        for each in left:
            self._taken.remove(each)
        return left + self._thread.read(lambda: self._of.take(key, unread=unread))

    def _left(self, key: bytes | None) -> tuple[Sample, ...]:
        return tuple(each for each in self._taken if key in (None, each.key))

    def wait(self, timeout: float | None = None) -> bool:
        return bool(self._taken) or self._thread.call(self._of.wait(timeout))

    def next_event(self, timeout: float | None = None) -> StreamEvent | None:
        return self._thread.call(self._of.next_event(timeout))

    def __iter__(self) -> Iterator[Sample]:
        """Whoever ends the loop early finds the rest as before."""
        taken = self._taken
        while True:
            while taken:
                yield taken.popleft()
            some = self._thread.call(self._of.take_some(TAKEN))
            if not some:
                return
            taken.extend(some)

    def close(self) -> None:
        self._thread.read(self._of.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
