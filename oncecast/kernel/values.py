"""Protocol effects, and the base class of everything that protocols exchange and store.

Value types live in modules without behaviour, because the compiler behind `make fast` cannot
compile msgspec structs.
"""

from __future__ import annotations

from typing import NewType, dataclass_transform, final

import msgspec

NodeId = NewType("NodeId", str)


@dataclass_transform(frozen_default=True)
class Value(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """Base class for messages, records, requests, events and timers.

    Values are immutable and never form cycles, so the garbage collector does not track them.
    """


@final
class Send(Value):
    to: NodeId
    message: Value
    after: int = 0


@final
class Emit(Value):
    """An event for the layers that observe its type, or for the application."""

    event: Value
    after: int = 0


@final
class Ask(Value):
    """A request to the layer that serves its type."""

    request: Value
    after: int = 0


@final
class Append(Value):
    """Write `record` to disk as the node's record `number`."""

    record: Value
    number: int


@final
class Snapshot(Value):
    """A state that replaces all records of its protocol up to `number`."""

    state: Value
    number: int


class Chunked(Value):
    """Base class for a large state, which is saved and restored in chunks."""

    chunks: tuple[bytes, ...]


@final
class Trim(Value):
    """A promise that `protocol` will never again read a record before `number`."""

    protocol: str
    number: int


@final
class Later(Value):
    """Set a timer. Timers compare by value: setting an equal timer again changes its due time."""

    delay: float
    timer: Value


@final
class Cancel(Value):
    timer: Value


@final
class Watch(Value):
    """Keep a link to `peer`; call `down(peer)` once when the link fails or cannot be opened."""

    peer: NodeId


@final
class Unwatch(Value):
    peer: NodeId


Effect = Send | Emit | Ask | Append | Snapshot | Trim | Later | Cancel | Watch | Unwatch


class Wake(Value):
    """A wake-up call for a timer. The stack ignores all but the latest call for the same timer."""

    at: float
    timer: Value
