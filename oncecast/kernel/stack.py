"""A stack of protocols: a node, which is itself one pure state machine.

The type of a value selects its protocol, so messages, timers and records carry no protocol name. A
step processes one input and everything that this input causes inside the node. The step returns the
effects that the driver must execute:

    Send, Emit        wait until record `after` is on disk, then send the message to the peer or
                      pass the event to the application
    Append            write the record; records are numbered 1, 2, 3, ... without gaps
    Snapshot, Trim    save the state under its number; delete records before a trimmed number
    Wake              pass the value to `wake` when the node's clock reaches its time
    Watch, Unwatch    keep or drop a link; call `down(peer)` once when the link is lost
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import UnionType
from typing import Any, ClassVar, get_args

from oncecast.kernel.protocol import (
    Append,
    Ask,
    Cancel,
    Effect,
    Emit,
    Later,
    Moment,
    NodeId,
    Port,
    Protocol,
    Send,
    Snapshot,
    Tally,
    Trim,
    Unwatch,
    Value,
    Watch,
)
from oncecast.kernel.values import Wake

NEVER = float("inf")


# Returns None to accept a message, or the answers to send back if it rejects the message.
Guard = Callable[[NodeId, Value], tuple[Value, ...] | None]

Output = Send | Emit | Append | Snapshot | Trim | Wake | Watch | Unwatch
NOTHING: list[Output] = []  # one shared list, because most steps of a large simulation return it


class Alarm:
    """A pending timer: `due` is its time, and `call` is when the driver will call `wake`.

    Setting the timer again moves `due` and keeps `call`, unless the call would come too late. A
    timeout that every message extends therefore costs the driver nothing.
    """

    __slots__ = ("call", "due")

    def __init__(self, due: float) -> None:
        self.due = self.call = due


class Wiring:
    """Maps each type to its layer. Nodes with the same layers share one instance."""

    _made: ClassVar[dict[tuple[type[Protocol], ...], Wiring]] = {}

    def __init__(self, layers: tuple[type[Protocol], ...]) -> None:
        self.layers = layers
        self.receiver = self.owners("Message")
        self.server = self.owners("Request")
        self.timer = self.owners("Timer")
        self.restorer = self.owners("Record") | self.owners("State")
        self.observers: dict[type, list[int]] = {}
        for layer, protocol in enumerate(layers):
            for kind in members(protocol.Observed):
                self.observers.setdefault(kind, []).append(layer)

    @classmethod
    def of(cls, layers: tuple[type[Protocol], ...]) -> Wiring:
        """Return the wiring of these layers, building it on first use."""
        if layers not in cls._made:
            cls._made[layers] = cls(layers)
        return cls._made[layers]

    def owners(self, role: str) -> dict[type[Value], int]:
        owners: dict[type[Value], int] = {}
        for layer, protocol in enumerate(self.layers):
            for kind in members(getattr(protocol, role)):
                other = owners.setdefault(kind, layer)
                assert other == layer, (
                    f"{kind.__name__} is the {role} of both {self.layers[other].name} "
                    f"and {protocol.name}; give one of them its own type"
                )
        return owners


class Stack:
    """Protocols, lowest layer first, that share a clock, a list of effects and record numbers."""

    __slots__ = (
        "_alarms",
        "_observers",
        "_receiver",
        "_server",
        "clock",
        "effects",
        "guard",
        "ignored",
        "protocols",
        "records",
        "wiring",
    )

    def __init__(self, protocols: Iterable[Protocol], *, guard: Guard | None = None) -> None:
        self.protocols, self.guard = list(protocols), guard
        self.wiring = Wiring.of(tuple(type(protocol) for protocol in self.protocols))
        self._receiver, self._server = self.wiring.receiver, self.wiring.server
        self._observers = self.wiring.observers
        self.records = Tally()
        self.ignored = 0  # number of messages of unknown types
        self._alarms: dict[Value, Alarm] = {}
        self._share(Moment(), [], None)

    def _share(self, clock: Moment, effects: list[Effect], port: Port | None) -> None:
        self.clock = clock
        self.effects = effects  # effects of the last step, including effects between the layers
        for protocol in self.protocols:
            protocol.share(clock, self.records, effects, port)

    def attach(self, port: Port) -> None:
        """Send messages and set timers through `port` from now on.

        The driver may then pass messages directly to a protocol and call `finish` after each one.
        Such messages bypass the guard, so the stack must not have one.
        """
        assert self.guard is None, "a stack with a guard cannot be attached to a port"
        self._share(port.clock, port.effects, port)

    def detach(self) -> None:
        """Stop using the port, so that steps return sends and timers as outputs again."""
        self._share(Moment(self.clock.now), [], None)

    def restore(self, number: int, record: Value) -> None:
        """Restore a record from an earlier run, or a snapshot taken at record `number`."""
        protocol = self.protocols[self.wiring.restorer[type(record)]]
        self.records.last = max(self.records.last, number)
        protocol.restore(record)
        assert not self.effects, f"{protocol.name}: restore() must have no effects"

    def restored(self, last: int, read: Callable[[int], Value]) -> None:
        """Continue after record `last`; call `read` to read earlier records."""
        self.records.last, self.records.read = last, read

    @property
    def heals(self) -> bool:
        """Return whether every protocol with records can start even if some are damaged."""
        return all(each.heals for each in self.protocols if each.Record is not None)

    def damaged(self, first: int, last: int) -> None:
        """Report that the records from `first` to `last` cannot be restored."""
        self.records.last = max(self.records.last, last)
        for protocol in self.protocols:
            protocol.damaged(first, last)

    def start(self, now: float) -> list[Output]:
        self.effects.clear()
        self.clock.now = now
        for protocol in self.protocols:
            protocol.start()
        return self._run(now)

    def request(self, now: float, request: Value) -> list[Output]:
        self.effects.clear()
        self.effects.append(Ask(request))
        self.clock.now = now
        return self._run(now)

    def receive(self, now: float, sender: NodeId, message: Value) -> list[Output]:
        effects = self.effects
        if effects:
            effects.clear()
        try:
            protocol = self.protocols[self._receiver[type(message)]]
        except KeyError:
            self.ignored += 1
            return NOTHING
        self.clock.now = now
        if self.guard is not None:
            answers = self.guard(sender, message)
            if answers is not None:
                effects.extend(Send(sender, each) for each in answers)
                return self._run(now)
        protocol.receive(sender, message)
        return self._run(now) if effects else NOTHING

    def finish(self, now: float) -> list[Output]:
        """Complete a step after the driver has passed an input directly to a protocol."""
        return self._run(now)

    def wake(self, now: float, wake: Wake) -> list[Output]:
        """Fire the timer of `wake`, unless it has been moved or cancelled."""
        self.effects.clear()
        timer = wake.timer
        alarm = self._alarms.get(timer)
        if alarm is None or alarm.call != wake.at:
            return NOTHING  # a later wake-up call has replaced this one
        if now < alarm.due:
            if alarm.due == NEVER:
                del self._alarms[timer]
                return NOTHING
            alarm.call = alarm.due
            return [Wake(alarm.due, timer)]
        alarm.due = alarm.call = NEVER
        protocol = self.protocols[self.wiring.timer[type(timer)]]
        self.clock.now = now
        protocol.timeout(timer)
        outputs = self._run(now) if self.effects else NOTHING
        if alarm.call == NEVER:  # its protocol has not set the timer again
            del self._alarms[timer]
        return outputs

    def down(self, now: float, peer: NodeId) -> list[Output]:
        self.effects.clear()
        self.clock.now = now
        for protocol in self.protocols:
            if peer in protocol.watched:
                del protocol.watched[peer]
                protocol.down(peer)
        return self._run(now)

    def _run(self, now: float) -> list[Output]:
        """Pass effects between the layers, and return the effects for the driver."""
        outputs: list[Output] = []
        protocols = self.protocols
        for effect in self.effects:  # the layers append to this list during the loop
            # `match` and isinstance are slow when a struct does not match, so compare the type.
            if type(effect) is Send:
                outputs.append(effect)
            elif type(effect) is Emit:
                observers = self._observers.get(type(effect.event))
                if observers is None:
                    outputs.append(effect)
                    continue
                for layer in observers:
                    protocol = protocols[layer]
                    # The observer's messages must wait for the records that the event depends on.
                    if effect.after > protocol.after:
                        protocol.after = effect.after
                    protocol.observe(effect.event)
            elif type(effect) is Ask:
                protocol = protocols[self._server[type(effect.request)]]
                if effect.after > protocol.after:
                    protocol.after = effect.after
                protocol.request(effect.request)
            elif type(effect) is Later:
                if wake := self.arm(now + effect.delay, effect.timer):
                    outputs.append(wake)
            elif type(effect) is Cancel:
                self.disarm(effect.timer)
            elif type(effect) is not Unwatch or not self._watches(effect.peer):
                outputs.append(effect)
        return outputs

    def arm(self, due: float, timer: Value) -> Wake | None:
        """Set a timer. Return a wake-up call, or None if an earlier one is already scheduled."""
        alarm = self._alarms.get(timer)
        if alarm is None:
            self._alarms[timer] = Alarm(due)
            return Wake(due, timer)
        alarm.due = due
        if due < alarm.call:
            alarm.call = due
            return Wake(due, timer)
        return None

    def disarm(self, timer: Value) -> None:
        if alarm := self._alarms.get(timer):
            alarm.due = NEVER

    def _watches(self, peer: NodeId) -> bool:
        return any(peer in protocol.watched for protocol in self.protocols)


def members(union: Any) -> tuple[type[Value], ...]:
    """Return the types of `A | B`, of a single type, or of None."""
    if union is None:
        return ()
    return get_args(union) if isinstance(union, UnionType) else (union,)
