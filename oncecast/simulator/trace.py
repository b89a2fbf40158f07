"""A trace: every input of every node with the effects it had, as a hash and as something to read.

Two runs are the same run when their hashes are equal. The hash covers the bytes of all inputs and
effects, so an iteration over a set, a clock or a dice that was not handed in shows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

import msgspec

from oncecast.kernel.protocol import Effect, NodeId

HASH_EVERY_BYTES = 1 << 16


class Step(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One input of one node and what came of it. `subject` is what the input carries."""

    time: float
    node: NodeId
    kind: str  # start, request, receive, wake, down; or a verb of the simulator: crash, pause, ...
    subject: Any
    effects: Sequence[Effect]


def plain(value: Any) -> Any:
    """What clients hear may hold headers, which are mappings that nobody can change."""
    if isinstance(value, MappingProxyType):
        return dict(value)
    raise TypeError(f"a step with a {type(value).__name__} cannot be traced")


class Trace:
    """`show` is given every step, to print it or to keep it."""

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
