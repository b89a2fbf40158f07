"""Streams for programs without an event loop. Any thread can use a writer or reader."""

# ruff: noqa: ASYNC109  # each method defines what happens when its timeout expires

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from threading import Lock
from typing import TYPE_CHECKING, Self

from oncecast.kernel.protocol import NodeId
from oncecast.streams import reader, streams, writer
from oncecast.streams.endpoint import StreamEvent
from oncecast.streams.protocols.cache import Sample
from oncecast.streams.writer import LINGER, VALUE_BYTES_MAX

if TYPE_CHECKING:
    from oncecast.streams.host import Thread

TAKE_MAX = 512  # maximum number of values that an iterator takes at a time


class Stream:
    def __init__(self, thread: Thread, of: streams.Stream) -> None:
        self._thread, self._of = thread, of

    def writer(self) -> Writer:
        return Writer(self._thread, self._thread.read(self._of.writer))

    def reader(self) -> Reader:
        return Reader(self._thread, self._thread.read(self._of.reader))


class Writer:
    """A writer of a stream. Use it in `with`, or close it."""

    def __init__(self, thread: Thread, of: writer.Writer) -> None:
        self._thread, self._of = thread, of
        self._buffer: deque[tuple[bytes, bytes]] = deque()
        self._lock = Lock()  # held while a value is added, so that `buffer_space` stays valid
        self._scheduled = False

    @property
    def readers(self) -> tuple[NodeId, ...]:
        return self._of.readers

    def wait_for_readers(self, count: int = 1, timeout: float = 30.0) -> tuple[NodeId, ...]:
        return self._thread.call(self._of.wait_for_readers(count, timeout))

    def write(self, value: bytes, key: bytes = b"") -> None:
        """Write a value. Wait only if the cache is full. Raise CacheFull after `blocking_max`."""
        if type(value) is not bytes or type(key) is not bytes or len(value) > VALUE_BYTES_MAX:
            self._of.refuse(value, key)
        with self._lock:
            buffer = self._buffer
            if len(buffer) < self._of.buffer_space:
                buffer.append((value, key))
                if not self._scheduled:
                    self._scheduled = True
                    self._thread.soon(self._write_buffered)
                return
        self._thread.call(self._write_and_wait(value, key))

    def _write_buffered(self) -> None:
        """Pass the buffered values to the writer. This runs in the node's thread."""
        with self._lock:
            self._scheduled = False
            buffer, self._buffer = self._buffer, deque()
            self._of.write_all(buffer)

    async def _write_and_wait(self, value: bytes, key: bytes) -> None:
        self._write_buffered()
        await self._of.write(value, key)

    async def _flush(self, timeout: float | None) -> None:
        self._write_buffered()
        await self._of.flush(timeout)

    async def _close(self, timeout: float) -> None:
        self._write_buffered()
        await self._of.close(timeout)

    def flush(self, timeout: float | None = None) -> None:
        self._thread.call(self._flush(timeout))

    def next_event(self, timeout: float | None = None) -> StreamEvent | None:
        return self._thread.call(self._of.next_event(timeout))

    def close(self, timeout: float = LINGER) -> None:
        self._thread.call(self._close(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        if error is None:
            self.close()
        else:
            self._thread.read(self._of.abandon)


class Reader:
    """A reader of a stream. `for sample in reader` takes values until the reader is closed."""

    def __init__(self, thread: Thread, of: reader.Reader) -> None:
        self._thread, self._of = thread, of
        self._taken: deque[Sample] = deque()  # samples left over from an earlier iteration

    @property
    def writers(self) -> tuple[NodeId, ...]:
        return self._of.writers

    def wait_for_writers(self, count: int = 1, timeout: float = 30.0) -> tuple[NodeId, ...]:
        return self._thread.call(self._of.wait_for_writers(count, timeout))

    def __len__(self) -> int:
        return len(self._taken) + self._thread.read(lambda: len(self._of))

    def keys(self) -> list[bytes]:
        leftover = [each.key for each in self._taken]
        return list(dict.fromkeys(leftover + self._thread.read(self._of.keys)))

    def read(self, key: bytes | None = None, *, unread: bool = False) -> tuple[Sample, ...]:
        return self._leftover(key) + self._thread.read(lambda: self._of.read(key, unread=unread))

    def take(self, key: bytes | None = None, *, unread: bool = False) -> tuple[Sample, ...]:
        leftover = self._leftover(key)
        for each in leftover:
            self._taken.remove(each)
        return leftover + self._thread.read(lambda: self._of.take(key, unread=unread))

    def _leftover(self, key: bytes | None) -> tuple[Sample, ...]:
        return tuple(each for each in self._taken if key in (None, each.key))

    def wait(self, timeout: float | None = None) -> bool:
        return bool(self._taken) or self._thread.call(self._of.wait(timeout))

    def next_event(self, timeout: float | None = None) -> StreamEvent | None:
        return self._thread.call(self._of.next_event(timeout))

    def __iter__(self) -> Iterator[Sample]:
        """Take and yield values one by one. If the loop ends early, the rest is kept."""
        taken = self._taken
        while True:
            while taken:
                yield taken.popleft()
            some = self._thread.call(self._of.take_some(TAKE_MAX))
            if not some:
                return
            taken.extend(some)

    def close(self) -> None:
        self._thread.read(self._of.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
