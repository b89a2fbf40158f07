"""The interface of a protocol: inputs are method calls, outputs are values.

A protocol is a pure state machine in the style of Babel (Fouto et al., SRDS 2022). Its inputs:

    restore(record)             after a restart: an earlier record of this protocol, oldest first
    damaged(first, last)        during restore: these records cannot be read
    start()                     once, after the last restore
    request(request)            a layer above makes a request
    receive(sender, message)    a message from a peer arrives
    observe(event)              another layer of the same node emits an event
    timeout(timer)              a timer expires
    down(peer)                  the link to a watched peer is lost

Its outputs are effects, created by six methods: `ask` (down), `emit` (up), `send` (to a peer),
`later` (a timer), `append` (to disk) and `watch` (a link). The time is `self.now`; random numbers
come from `self.rng`.

Records are saved before messages that depend on them are sent. Each Send, Emit and Ask carries
`after`, the number of the last record that its protocol depends on. The effect leaves the node only
when that record is on disk. A protocol that has appended no record never waits. A protocol can pass
a different `after` to `send`, `emit` and `ask`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, ClassVar
from typing import Protocol as Interface

from oncecast.kernel.compiling import mypyc_attr
from oncecast.kernel.values import (
    Append,
    Ask,
    Cancel,
    Chunked,
    Effect,
    Emit,
    Later,
    NodeId,
    Send,
    Snapshot,
    Trim,
    Unwatch,
    Value,
    Watch,
)

__all__ = [
    "Append",
    "Ask",
    "Cancel",
    "Chunked",
    "Effect",
    "Emit",
    "Later",
    "Moment",
    "NodeId",
    "Port",
    "Protocol",
    "Send",
    "Snapshot",
    "Tally",
    "Trim",
    "Unwatch",
    "Value",
    "Watch",
    "nothing_kept",
]


@mypyc_attr(allow_interpreted_subclasses=True)
class Moment:
    """The current time, shared by the protocols of a stack."""

    __slots__ = ("now",)

    def __init__(self, now: float = 0.0) -> None:
        self.now = now


class Tally:
    """The last record's number and a way to read records, shared by a stack's protocols."""

    __slots__ = ("last", "read")

    def __init__(self) -> None:
        self.last = 0
        self.read: Callable[[int], Value] = nothing_kept


def nothing_kept(number: int) -> Value:
    raise LookupError(f"cannot read record {number}: this node has no journal")


class Port(Interface):
    """Executes a stack's sends and timers immediately instead of returning them as effects.

    A port is faster. A driver can use one if it neither delays nor records a node's effects. Stacks
    that share a clock and a list of effects must not run concurrently.
    """

    @property
    def clock(self) -> Moment: ...
    @property
    def effects(self) -> list[Effect]:
        """Return the list that receives all effects except sends and timers."""

    def send(self, to: NodeId, message: Value) -> None: ...
    def later(self, delay: float, timer: Value) -> None: ...
    def cancel(self, timer: Value) -> None: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Protocol:
    """A pure state machine. Its class variables declare the types that it handles."""

    name: ClassVar[str]
    Request: ClassVar[Any] = None  # requests from the layers above
    Message: ClassVar[Any] = None  # messages from peers
    Observed: ClassVar[Any] = None  # events from other layers
    Timer: ClassVar[Any] = None
    Record: ClassVar[Any] = None  # the types that it appends
    State: ClassVar[Any] = None  # the types of its snapshots
    heals: ClassVar[bool] = False  # whether the protocol can start without its damaged records

    def __init__(self, me: NodeId, rng: Random) -> None:
        self.me, self.rng = me, rng
        self.after = 0  # the last record that this protocol depends on
        self.watched: dict[NodeId, None] = {}
        self._clock = Moment()
        self._records = Tally()
        self._effects: list[Effect] = []
        self._port: Port | None = None

    @property
    def now(self) -> float:
        return self._clock.now

    @now.setter
    def now(self, now: float) -> None:
        self._clock.now = now

    @property
    def last_record(self) -> int:
        """Return the number of the last record that any protocol of the node appended."""
        return self._records.last

    def restore(self, record: Any) -> None: ...
    def damaged(self, first: int, last: int) -> None: ...
    def start(self) -> None: ...
    def request(self, request: Any) -> None: ...
    def receive(self, sender: NodeId, message: Any) -> None: ...
    def observe(self, event: Any) -> None: ...
    def timeout(self, timer: Any) -> None: ...
    def down(self, peer: NodeId) -> None: ...

    def send(self, to: NodeId, message: Value, after: int = -1) -> None:
        if self._port is None:
            self._effects.append(Send(to, message, self.after if after < 0 else after))
        else:
            self._port.send(to, message)

    def emit(self, event: Value, after: int = -1) -> None:
        self._effects.append(Emit(event, self.after if after < 0 else after))

    def ask(self, request: Value, after: int = -1) -> None:
        self._effects.append(Ask(request, self.after if after < 0 else after))

    def append(self, record: Value) -> int:
        """Append `record` and return its number; later messages wait until it is on disk."""
        self._records.last = self.after = number = self._records.last + 1
        self._effects.append(Append(record, number))
        return number

    def recall(self, number: int) -> Value:
        """Read one of this protocol's records back, so that it need not stay in memory."""
        return self._records.read(number)

    def snapshot(self, state: Value, number: int = -1) -> None:
        """Save `state`. After a restart, `restore` gets this state and then only later records.

        Pass `number` if `state` does not include the newest records.
        """
        self._effects.append(Snapshot(state, self._records.last if number < 0 else number))

    def trim(self, number: int) -> None:
        """Free the disk space of records before `number` that a snapshot covers.

        The protocols of a stack share one log, which is trimmed at the lowest of their numbers.
        """
        self._effects.append(Trim(self.name, number))

    def later(self, delay: float, timer: Value) -> None:
        if self._port is None:
            self._effects.append(Later(delay, timer))
        else:
            self._port.later(delay, timer)

    def cancel(self, timer: Value) -> None:
        if self._port is None:
            self._effects.append(Cancel(timer))
        else:
            self._port.cancel(timer)

    def watch(self, peer: NodeId) -> None:
        if peer not in self.watched:
            self.watched[peer] = None
            self._effects.append(Watch(peer))

    def unwatch(self, peer: NodeId) -> None:
        if peer in self.watched:
            del self.watched[peer]
            self._effects.append(Unwatch(peer))

    def drain(self) -> list[Effect]:
        """Return and clear the pending effects. Use this if the protocol runs without a stack."""
        effects = self._effects[:]
        self._effects.clear()
        return effects

    def share(
        self, clock: Moment, records: Tally, effects: list[Effect], port: Port | None
    ) -> None:
        """Join a stack, whose protocols share a clock, record numbers and a list of effects."""
        self._clock, self._records, self._effects, self._port = clock, records, effects, port
