"""A node is a stack of protocols, and is itself one pure state machine.

A value finds its protocol by its type, so neither messages, timers nor records carry a name. One
step runs one input, and all that it causes inside the node, to completion. It returns what the
driver must do:

    Send, Emit        let it go once record `after` is on disk; an Emit is for the application
    Append            write it; records are numbered 1, 2, 3, ... without a gap
    Snapshot, Trim    save the state under its number; records before a trimmed number may go
    Wake              give it back by `wake` at that time of the node's own clock
    Watch, Unwatch    keep, or give up, a link; call `down(peer)` once when it is gone
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MethodType, UnionType
from typing import Any, ClassVar, NamedTuple, get_args

from oncecast.kernel.protocol import (
    Append,
    Ask,
    Cancel,
    Effect,
    Emit,
    Later,
    Moment,
    NodeId,
    Protocol,
    Send,
    Snapshot,
    Tally,
    Trim,
    Unwatch,
    Value,
    Watch,
)

NEVER = float("inf")


class Wake(Value):
    """An appointment; only the last one made for a timer counts."""

    at: float
    timer: Value


Output = Send | Emit | Append | Snapshot | Trim | Wake | Watch | Unwatch
NOTHING: list[Output] = []  # made once: most steps of a large simulation return it


class Alarm:
    """A timer that is set: when it is due, and when the driver will call for it.

    Re-arming moves `due` and leaves the call alone while it comes early enough: a time-out that is
    put off at every message then costs the driver nothing.
    """

    __slots__ = ("call", "due")

    def __init__(self, due: float) -> None:
        self.due = self.call = due


class Wiring:
    """Which type belongs to which layer. Ten thousand nodes of the same make share one."""

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
                    f"and {protocol.name}: give one of them a type of its own"
                )
        return owners


class ShortCut(NamedTuple):
    """A driver that neither holds back nor writes down takes messages and timers at once.

    That saves most of a step's cost. Such a driver sets timers by `arm`, and may even give a
    message to its protocol itself and only `finish` the step. Only one of its stacks runs at a
    time, so they share a clock and a list of effects.
    """

    send: Callable[..., None]  # what the verbs of a protocol do; the protocol comes first
    later: Callable[..., None]
    clock: Moment
    effects: list[Effect]


class Stack:
    """Protocols, lowest first, with one clock, one list of effects and one numbering of records."""

    __slots__ = (
        "_alarms",
        "_observers",
        "_receiver",
        "_server",
        "clock",
        "effects",
        "ignored",
        "protocols",
        "records",
        "wiring",
    )

    def __init__(self, protocols: Iterable[Protocol]) -> None:
        self.protocols = list(protocols)
        self.wiring = Wiring.of(tuple(type(protocol) for protocol in self.protocols))
        self._receiver, self._server = self.wiring.receiver, self.wiring.server
        self._observers = self.wiring.observers
        self.records = Tally()
        self.ignored = 0  # messages that no protocol here knows
        self._alarms: dict[Value, Alarm] = {}
        self._share(Moment(), [])

    def _share(self, clock: Moment, effects: list[Effect]) -> None:
        self.clock = clock
        self.effects = effects  # of the last step, those inside the node included
        for protocol in self.protocols:
            protocol.share(clock, self.records, effects)

    def take(self, short_cut: ShortCut) -> None:
        self._share(short_cut.clock, short_cut.effects)
        for protocol in self.protocols:
            protocol.send = MethodType(short_cut.send, protocol)  # type: ignore[method-assign]
            protocol.later = MethodType(short_cut.later, protocol)  # type: ignore[method-assign]
            protocol.cancel = self.disarm  # type: ignore[method-assign]

    def leave_short_cut(self) -> None:
        self._share(Moment(self.clock.now), [])
        for protocol in self.protocols:
            del protocol.send, protocol.later, protocol.cancel

    def restore(self, number: int, record: Value) -> None:
        """Give back a record of an earlier life, or a snapshot taken at that number."""
        protocol = self.protocols[self.wiring.restorer[type(record)]]
        self.records.last = max(self.records.last, number)
        protocol.restore(record)
        assert not self.effects, f"{protocol.name}: restore() must have no effects"

    @property
    def heals(self) -> bool:
        """Whether all who append can do without some of their records."""
        return all(each.heals for each in self.protocols if each.Record is not None)

    def damaged(self, first: int, last: int) -> None:
        """The records from `first` to `last` of an earlier life cannot be given back."""
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
        protocol.receive(sender, message)
        return self._run(now) if effects else NOTHING

    def finish(self, now: float) -> list[Output]:
        """Carry out what a protocol has done, if a driver has given it an input directly."""
        return self._run(now)

    def wake(self, now: float, wake: Wake) -> list[Output]:
        """The driver keeps an appointment; the timer may have been put off or cancelled since."""
        self.effects.clear()
        timer = wake.timer
        alarm = self._alarms.get(timer)
        if alarm is None or alarm.call != wake.at:
            return NOTHING  # not the last one made
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
        if alarm.call == NEVER:  # it was not set again
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
        """Carry effects between the layers until only those for the driver are left."""
        outputs: list[Output] = []
        protocols = self.protocols
        for effect in self.effects:  # it grows while we go: what a layer does comes after its cause
            # No `match` and no isinstance: where the type is another, they are slow for structs.
            if type(effect) is Send:
                outputs.append(effect)
            elif type(effect) is Emit:
                observers = self._observers.get(type(effect.event))
                if observers is None:
                    outputs.append(effect)
                    continue
                for layer in observers:
                    protocol = protocols[layer]
                    # Who hears of something not yet on disk must not speak of it too early.
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
        """Set a timer; the appointment, unless the one that is made already comes early enough."""
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
    """The types of `A | B`, of a single type, or of None."""
    if union is None:
        return ()
    return get_args(union) if isinstance(union, UnionType) else (union,)
