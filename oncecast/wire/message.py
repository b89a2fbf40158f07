"""A message, as an application receives it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


# gc=False is safe, because the fields of a message cannot form a cycle.
class Message(msgspec.Struct, frozen=True, gc=False):
    """A message as a reader receives it. `timestamp` is in microseconds since 1970."""

    topic: str
    offset: int
    key: bytes | None
    value: bytes
    headers: Mapping[str, bytes]
    timestamp: int
    producer: str
    sequence: int
    redelivered: bool
    partition: int = -1  # the partition of `topic`, or -1 in a plain topic
