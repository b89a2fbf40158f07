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
from types import UnionType
from typing import Any, ClassVar, get_args

from oncecast.kernel.protocol import (
    Append,
    Ask,
    Cancel,
    Effect,
    Emit,
    Later,
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


class Stack:
    """Protocols, lowest first, with one list of effects and one numbering of records."""

    __slots__ = ("_alarms", "_receiver", "effects", "ignored", "protocols", "records", "wiring")

    def __init__(self, protocols: Iterable[Protocol]) -> None:
        self.protocols = list(protocols)
        self.wiring = Wiring.of(tuple(type(protocol) for protocol in self.protocols))
        self._receiver = self.wiring.receiver
        self.records = Tally()
        self.effects: list[Effect] = []  # of the last step, those inside the node included
        self.ignored = 0  # messages that no protocol here knows
        self._alarms: dict[Value, Alarm] = {}
        for protocol in self.protocols:
            protocol.share(self.records, self.effects)

    def short_cut(self, send: Callable[..., None] | None) -> None:
        """Hand messages to `send` at once instead of returning them; None takes that back.

        For a driver that neither holds back nor writes down: it saves most of a step's cost. Such
        a driver may even give a message to its protocol itself, and only `finish` the step.
        """
        for protocol in self.protocols:
            if send is not None:
                protocol.send = send  # type: ignore[method-assign]
            elif "send" in vars(protocol):
                del protocol.send

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
        for protocol in self.protocols:
            protocol.now = now
            protocol.start()
        return self._run(now)

    def request(self, now: float, request: Value) -> list[Output]:
        self.effects.clear()
        self.effects.append(Ask(request))
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
        protocol.now = now
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
        del self._alarms[timer]
        protocol = self.protocols[self.wiring.timer[type(timer)]]
        protocol.now = now
        protocol.timeout(timer)
        return self._run(now)

    def down(self, now: float, peer: NodeId) -> list[Output]:
        self.effects.clear()
        for protocol in self.protocols:
            if peer in protocol.watched:
                del protocol.watched[peer]
                protocol.now = now
                protocol.down(peer)
        return self._run(now)

    def _run(self, now: float) -> list[Output]:
        """Carry effects between the layers until only those for the driver are left."""
        outputs: list[Output] = []
        for effect in self.effects:  # it grows while we go: what a layer does comes after its cause
            if isinstance(effect, Send):  # these two apart, because there are so many
                outputs.append(effect)
                continue
            if isinstance(effect, Later):
                self._arm(now + effect.delay, effect.timer, outputs)
                continue
            match effect:
                case Emit(event, after):
                    observers = self.wiring.observers.get(type(event))
                    if observers is None:
                        outputs.append(effect)
                        continue
                    for layer in observers:
                        protocol = self._enter(layer, now, after)
                        protocol.observe(event)
                case Ask(request, after):
                    protocol = self._enter(self.wiring.server[type(request)], now, after)
                    protocol.request(request)
                case Cancel(timer):
                    if alarm := self._alarms.get(timer):
                        alarm.due = NEVER
                case Unwatch(peer):
                    if not any(peer in protocol.watched for protocol in self.protocols):
                        outputs.append(effect)
                case _:
                    outputs.append(effect)
        return outputs

    def _arm(self, due: float, timer: Value, outputs: list[Output]) -> None:
        alarm = self._alarms.get(timer)
        if alarm is None:
            self._alarms[timer] = Alarm(due)
            outputs.append(Wake(due, timer))
            return
        alarm.due = due
        if due < alarm.call:
            alarm.call = due
            outputs.append(Wake(due, timer))

    def _enter(self, layer: int, now: float, after: int) -> Protocol:
        """A layer that hears of something not yet on disk must not speak of it too early."""
        protocol = self.protocols[layer]
        protocol.now = now
        if after > protocol.after:
            protocol.after = after
        return protocol


def members(union: Any) -> tuple[type[Value], ...]:
    """The types of `A | B`, of a single type, or of None."""
    if union is None:
        return ()
    return get_args(union) if isinstance(union, UnionType) else (union,)
