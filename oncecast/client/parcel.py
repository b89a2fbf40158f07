"""Collect one topic's messages until they become a batch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from oncecast.wire.batch import Builder
from oncecast.wire.batch_builder import of_values
from oncecast.wire.batch_layout import FRAME_BYTES
from oncecast.wire.timing import Timing

if TYPE_CHECKING:
    from oncecast.client.routing import Router

MESSAGE_BYTES = 20  # assumed overhead of each message, in bytes
CHUNK = 1024  # number of values that `put_many` measures at once


class Receipt(NamedTuple):
    """The offset of a stored message, and whether the topic keeps it.

    If the node no longer knows the offset, `offset` is -1 and `kept` is None. A message is not kept
    if the topic has no subscription and its policy retains nothing. The `offset` of a delayed
    message is -1, because it gets its offset when it is due.
    """

    offset: int
    kept: bool | None

    @property
    def partition(self) -> int:
        """Return the partition that has the message, or -1 in a plain topic."""
        return -1


class Parcel:
    """A batch of messages to one topic that is still being filled."""

    __slots__ = (
        "builder",
        "bytes",
        "count",
        "cut",
        "most",
        "partition",
        "router",
        "time",
        "timing",
        "topic",
        "values",
        "waited",
        "waiters",
    )

    def __init__(self, topic: str, most: int, cut: int, timing: Timing | None = None) -> None:
        self.topic, self.timing = topic, timing
        self.router: Router | None = None  # None if the topic has no partitions
        self.partition = -1
        # Maximum size of the batch, and the size at which it is sent.
        self.most, self.cut = most, cut
        self.values: list[bytes] = []  # plain values that are not in the builder yet
        self.builder: Builder | None = None
        self.bytes = 0
        self.time = time.time_ns() // 1000
        self.waiters: list[tuple[asyncio.Future[Receipt], int]] = []
        self.waited = 0  # number of messages with a waiter
        self.count = 0  # number of messages, or 0 until the batch is built

    def __len__(self) -> int:
        return len(self.values) + (len(self.builder) if self.builder is not None else 0)

    @property
    def key(self) -> str | tuple[str, Timing]:
        """Return the key of the batches that may collect these messages."""
        return self.topic if self.timing is None else (self.topic, self.timing)

    @property
    def silent(self) -> bool:
        """Return whether any message in the batch has no waiter."""
        return (self.count or len(self)) > self.waited

    def take(self, value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None) -> bool:
        """Add a plain value if it fits into the batch. Return whether it was added."""
        if key is None and headers is None and type(value) is bytes:
            size = self.bytes + MESSAGE_BYTES + len(value)
            if size <= self.cut:
                self.values.append(value)
                self.bytes = size
                return True
        return False

    def add(self, value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None) -> None:
        """Add a message with a key or headers. Raise an error if it is invalid or does not fit."""
        builder = self._gathered()
        before = builder.bytes
        builder.add(value, key, headers, self.time)
        self.bytes += builder.bytes - before

    def build(self, zstd: int | None) -> bytes:
        """Return the packed batch and release the messages."""
        self.count = len(self)
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
    """Yield chunks of up to `most` bytes, with their sizes. A larger value gets its own chunk."""
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
