"""Arithmetic on 256-bit identifiers, which lie on a circle.

An identifier is 32 bytes, so comparing bytes compares identifiers.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NewType

from oncecast.kernel.protocol import NodeId, Value

Key = NewType("Key", bytes)

BITS = 256
BYTES = BITS // 8
NODE_LENGTH_MAX = 255


class Place(Value, tag=False):
    """A position on the ring, and the node that holds it."""

    id: Key
    node: NodeId

    @property
    def possible(self) -> bool:
        """Whether an honest node could have said it; what a peer sends need not be."""
        return len(self.id) == BYTES and 0 < len(self.node) <= NODE_LENGTH_MAX


def key_of(text: str) -> Key:
    return Key(sha256(text.encode()).digest())


def positions(name: str, count: int) -> tuple[Key, ...]:
    """The ids of a member with several positions; the first is the one of a member with one."""
    return tuple(key_of(f"{name}#{index}" if index else name) for index in range(count))


def between(low: Key, key: Key, high: Key) -> bool:
    """Whether `key` comes after `low` and before `high`, going round. From an id to itself is once
    round: everything but the id."""
    if low < high:
        return low < key < high
    return low < key or key < high


def up_to(low: Key, key: Key, high: Key) -> bool:
    """The same, `high` included: whether `high` owns `key` when `low` is the one before it."""
    return key == high or between(low, key, high)


def finger_start(id: Key, index: int) -> Key:
    """Where finger `index` begins: 2^index further on."""
    start = (int.from_bytes(id) + (1 << index)) % (1 << BITS)
    return Key(start.to_bytes(BYTES))


def after(id: Key) -> Key:
    """The next id."""
    return finger_start(id, 0)


def distance(low: Key, high: Key) -> int:
    """How far it is from `low` on to `high`."""
    return (int.from_bytes(high) - int.from_bytes(low)) % (1 << BITS)
