"""Arithmetic on a circle of 256-bit identifiers.

An identifier is 32 bytes in big-endian order, so comparing the bytes compares the identifiers.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NewType

from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.topic_tag import tag_of

Key = NewType("Key", bytes)

BITS = 256
BYTES = BITS // 8
NODE_LENGTH_MAX = 255


class Position(Value, tag=False):
    """An identifier on the ring and the node that holds it."""

    id: Key
    node: NodeId

    @property
    def possible(self) -> bool:
        """Return whether an honest peer could have sent this position."""
        return len(self.id) == BYTES and 0 < len(self.node) <= NODE_LENGTH_MAX


def key_of(text: str) -> Key:
    """Return the SHA-256 of `text`."""
    return Key(sha256(text.encode()).digest())


def key_of_topic(topic: str) -> Key:
    """Return the identifier of a topic. Topics with the same tag have the same owner."""
    return key_of(tag_of(topic))


def position_ids(name: str, count: int) -> tuple[Key, ...]:
    """Return the identifiers of a node with `count` positions. The first is the hash of `name`."""
    return tuple(key_of(f"{name}#{index}" if index else name) for index in range(count))


def between(low: Key, key: Key, high: Key) -> bool:
    """Return whether `key` lies after `low` and before `high`, clockwise.

    If `low` equals `high`, the interval is the whole circle except that identifier.
    """
    if low < high:
        return low < key < high
    return low < key or key < high


def up_to(low: Key, key: Key, high: Key) -> bool:
    """Return whether `key` lies after `low` and at or before `high`, clockwise.

    If `low` is the predecessor of `high`, these are the keys that `high` owns.
    """
    return key == high or between(low, key, high)


def finger_start(id: Key, index: int) -> Key:
    """Return the identifier 2^index after `id`, where finger `index` starts."""
    start = (int.from_bytes(id) + (1 << index)) % (1 << BITS)
    return Key(start.to_bytes(BYTES))


def after(id: Key) -> Key:
    """Return the identifier that follows `id`."""
    return finger_start(id, 0)


def distance(low: Key, high: Key) -> int:
    """Return the clockwise distance from `low` to `high`."""
    return (int.from_bytes(high) - int.from_bytes(low)) % (1 << BITS)
