"""The contract of a protocol: an input is a method call, an output is a value; that is all.

A protocol is a pure state machine in the spirit of Babel (Fouto et al., SRDS 2022). Its inputs:

    restore(record)             what it appended in an earlier life, oldest first
    damaged(first, last)        in between: these records cannot be read any more
    start()                     once, after the last restore
    request(request)            a layer above asks
    receive(sender, message)    a peer sends
    observe(event)              another layer of the same node emits
    timeout(timer)              time has come
    down(peer)                  the link to a watched peer is gone

Its outputs are effects, made by six verbs: `ask` (down), `emit` (up), `send` (across), `later` (in
time), `append` (to disk) and `watch` (a link). Time is `self.now`, chance is `self.rng`.

Saved before sent: a Send, Emit or Ask carries `after`, the number of the last record that its
protocol knew of when it was made, and leaves the node only when that record is on disk. A protocol
that has appended nothing never waits; one that knows better gives an `after` of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, ClassVar, NewType, dataclass_transform, final

import msgspec

NodeId = NewType("NodeId", str)


@dataclass_transform(frozen_default=True)
class Value(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """Base of everything that crosses a wire, a disk or a layer.

    Values are frozen and never part of a cycle, so the garbage collector need not look at them.
    """


@final
class Send(Value):
    to: NodeId
    message: Value
    after: int = 0


@final
class Emit(Value):
    """An event, for whoever above observes its type."""

    event: Value
    after: int = 0


@final
class Ask(Value):
    """A request, for the one protocol below that serves its type."""

    request: Value
    after: int = 0


@final
class Append(Value):
    """Make `record` durable; it is the node's record `number`."""

    record: Value
    number: int


@final
class Snapshot(Value):
    """`state` stands for all that its protocol has appended up to record `number`."""

    state: Value
    number: int


class Chunked(Value):
    """Base of a state that may be large: its chunks are saved and given back as they are."""

    chunks: tuple[bytes, ...]


@final
class Trim(Value):
    """Its protocol will never again read a record before `number`."""

    protocol: str
    number: int


@final
class Later(Value):
    """Timers are values: setting an equal one again re-arms it."""

    delay: float
    timer: Value


@final
class Cancel(Value):
    timer: Value


@final
class Watch(Value):
    """Keep a link to `peer` and say `down(peer)`, once, when it is gone or cannot be made."""

    peer: NodeId


@final
class Unwatch(Value):
    peer: NodeId


Effect = Send | Emit | Ask | Append | Snapshot | Trim | Later | Cancel | Watch | Unwatch


class Moment:
    """What time it is; the protocols of a stack share one."""

    __slots__ = ("now",)

    def __init__(self, now: float = 0.0) -> None:
        self.now = now


class Tally:
    """Counts the records of a node, and finds them again; the protocols of a stack share one."""

    __slots__ = ("last", "read")

    def __init__(self) -> None:
        self.last = 0
        self.read: Callable[[int], Value] = nothing_kept


def nothing_kept(number: int) -> Value:
    raise LookupError(f"record {number}: this node has no journal to read it from")


class Protocol:
    """A pure state machine. The six class variables say which types are its own."""

    name: ClassVar[str]
    Request: ClassVar[Any] = None  # what layers above may ask
    Message: ClassVar[Any] = None  # what peers may send
    Observed: ClassVar[Any] = None  # which events of other layers it follows
    Timer: ClassVar[Any] = None  # what it sets itself
    Record: ClassVar[Any] = None  # what it appends
    State: ClassVar[Any] = None  # what its snapshots hold
    heals: ClassVar[bool] = False  # it can do without some of its records; others must not start

    def __init__(self, me: NodeId, rng: Random) -> None:
        self.me, self.rng = me, rng
        self.after = 0  # the last record this protocol knows of, its own or another layer's
        self.watched: dict[NodeId, None] = {}
        self._clock = Moment()
        self._records = Tally()
        self._effects: list[Effect] = []

    @property
    def now(self) -> float:
        return self._clock.now

    @now.setter
    def now(self, now: float) -> None:
        self._clock.now = now

    def restore(self, record: Any) -> None: ...
    def damaged(self, first: int, last: int) -> None: ...
    def start(self) -> None: ...
    def request(self, request: Any) -> None: ...
    def receive(self, sender: NodeId, message: Any) -> None: ...
    def observe(self, event: Any) -> None: ...
    def timeout(self, timer: Any) -> None: ...
    def down(self, peer: NodeId) -> None: ...

    def send(self, to: NodeId, message: Value, after: int = -1) -> None:
        self._effects.append(Send(to, message, self.after if after < 0 else after))

    def emit(self, event: Value, after: int = -1) -> None:
        self._effects.append(Emit(event, self.after if after < 0 else after))

    def ask(self, request: Value, after: int = -1) -> None:
        self._effects.append(Ask(request, self.after if after < 0 else after))

    def append(self, record: Value) -> int:
        """Make `record` durable and return its number; what is sent from now on waits for it."""
        self._records.last = self.after = number = self._records.last + 1
        self._effects.append(Append(record, number))
        return number

    def recall(self, number: int) -> Value:
        """Read an own record again, once it is on disk: state that need not be kept in memory."""
        return self._records.read(number)

    def snapshot(self, state: Value, number: int = -1) -> None:
        """After a restart `restore` sees `state` first, then only what was appended since.

        A state that does not know of the newest records yet says which is the last it stands for.
        """
        self._effects.append(Snapshot(state, self._records.last if number < 0 else number))

    def trim(self, number: int) -> None:
        """Give back the disk space of records before `number` that a snapshot covers.

        The log is shared: it is cut off only where every protocol that appends has let go.
        """
        self._effects.append(Trim(self.name, number))

    def later(self, delay: float, timer: Value) -> None:
        self._effects.append(Later(delay, timer))

    def cancel(self, timer: Value) -> None:
        self._effects.append(Cancel(timer))

    def watch(self, peer: NodeId) -> None:
        if peer not in self.watched:
            self.watched[peer] = None
            self._effects.append(Watch(peer))

    def unwatch(self, peer: NodeId) -> None:
        if peer in self.watched:
            del self.watched[peer]
            self._effects.append(Unwatch(peer))

    def drain(self) -> list[Effect]:
        """The effects so far, for tests and whoever drives a protocol without a stack."""
        effects = self._effects[:]
        self._effects.clear()
        return effects

    def share(self, clock: Moment, records: Tally, effects: list[Effect]) -> None:
        """Become part of a stack: its protocols write into one list of effects, in order."""
        self._clock, self._records, self._effects = clock, records, effects
