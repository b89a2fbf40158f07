"""Messages of one topic that were put together, until they leave as a batch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from oncecast.wire.batch import Builder
from oncecast.wire.batch_builder import of_values
from oncecast.wire.batch_layout import FRAME_BYTES

MESSAGE_BYTES = 20  # counted for each message beside its value
CHUNK = 1024  # values of `put_many` that are looked at together


class Receipt(NamedTuple):
    """Where a message is: on disk, for ever its own. -1 and None: stored, but that is all we know.

    Not `kept`: nobody subscribes to the topic and nothing retains it, so nobody will ever get it.
    """

    offset: int
    kept: bool | None


class Parcel:
    """Messages of one topic that become a batch."""

    __slots__ = ("builder", "bytes", "most", "silent", "time", "topic", "values", "waiters")

    def __init__(self, topic: str, most: int) -> None:
        self.topic = topic
        self.most = most  # bytes that its messages may take
        self.values: list[bytes] = []  # without key and headers, not in the builder yet
        self.builder: Builder | None = None
        self.bytes = 0
        self.time = time.time_ns() // 1000
        self.waiters: list[tuple[asyncio.Future[Receipt], int]] = []
        self.silent = False  # somebody put without waiting

    def __len__(self) -> int:
        return len(self.values) + (len(self.builder) if self.builder is not None else 0)

    def add(self, value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None) -> None:
        """A message of the rarer kind; raises if it is none."""
        builder = self._gathered()
        before = builder.bytes
        builder.add(value, key, headers, self.time)
        self.bytes += builder.bytes - before

    def build(self, zstd: int | None) -> bytes:
        """The batch; then the messages are in there, and no longer here."""
        if self.builder is None:
            batch = of_values(self.values, self.time, zstd=zstd)
        else:
            batch = self._gathered().build(zstd=zstd)
            self.builder = None
        self.values = []
        self.bytes = len(batch)
        return batch

    def _gathered(self) -> Builder:
        builder = self.builder
        if builder is None:
            builder = self.builder = Builder(self.most + FRAME_BYTES)
        if self.values:
            builder.extend(self.values, self.time)
            self.values = []
        return builder


def slices(values: list[bytes], most: int) -> Iterator[tuple[list[bytes], int]]:
    """In order, with what each takes: no more than `most`, unless it is one value alone."""
    for start in range(0, len(values), CHUNK):
        some = values[start : start + CHUNK]
        size = sum(map(len, some)) + MESSAGE_BYTES * len(some)
        if size <= most:
            yield some, size
        else:
            yield from _cut(some, most)


def _cut(values: list[bytes], most: int) -> Iterator[tuple[list[bytes], int]]:
    some: list[bytes] = []
    size = 0
    for value in values:
        more = MESSAGE_BYTES + len(value)
        if some and size + more > most:
            yield some, size
            some, size = [], 0
        some.append(value)
        size += more
    yield some, size
