"""A trace: all inputs and effects of all nodes, as a hash and optionally step by step.

Two runs are the same if their hashes are equal. Nondeterminism, such as iterating over a set or
reading the system clock, changes the hash.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

import msgspec

from oncecast.simulator.step import Step

HASH_EVERY_BYTES = 1 << 16


def plain(value: Any) -> Any:
    """Return a read-only mapping, such as message headers, as a dict that can be encoded."""
    if isinstance(value, MappingProxyType):
        return dict(value)
    raise TypeError(f"cannot trace a step with a {type(value).__name__}")


class Trace:
    """A running hash of all steps. The trace calls `show` with each step."""

    def __init__(self, show: Callable[[Step], None] | None = None) -> None:
        self.steps = 0
        self.show = show
        self._hash = blake2b(digest_size=16)
        self._buffer = bytearray()
        self._encode = msgspec.msgpack.Encoder(enc_hook=plain).encode_into

    def add(self, step: Step) -> None:
        self.steps += 1
        self._encode(step, self._buffer, -1)
        if len(self._buffer) > HASH_EVERY_BYTES:
            self._fold()
        if self.show is not None:
            self.show(step)

    def _fold(self) -> None:
        self._hash.update(self._buffer)
        self._buffer.clear()

    @property
    def hash(self) -> str:
        self._fold()
        return self._hash.hexdigest()
