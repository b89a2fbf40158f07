"""NET-1: a stack of protocols is itself a pure state machine."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.kernel.protocol import (
    Append,
    Effect,
    Emit,
    Moment,
    NodeId,
    Protocol,
    Send,
    Snapshot,
    Trim,
    Unwatch,
    Value,
    Watch,
)
from oncecast.kernel.stack import Stack
from oncecast.kernel.values import Wake

A, B = NodeId("a"), NodeId("b")


class Ping(Value):
    text: str


class Patience(Value):
    """A timer in the lower layer."""


class Other(Value):
    """Another timer in the same protocol."""


class Say(Value):
    text: str


class Said(Value):
    text: str


class Noted(Value):
    text: str


class Notes(Value):
    texts: tuple[str, ...]


class Wire(Protocol):
    """The lower layer: sends requests to a peer, and emits received messages."""

    name = "wire"
    Request = Say
    Message = Ping
    Timer = Patience | Other

    def request(self, request: Say) -> None:
        self.send(B, Ping(request.text))

    def receive(self, sender: NodeId, message: Ping) -> None:
        self.emit(Said(message.text))

    def timeout(self, timer: Patience | Other) -> None:
        self.send(B, Ping(f"{type(timer).__name__} at {self.now:g}"))

    def down(self, peer: NodeId) -> None:
        self.emit(Said(f"{peer} is gone"))


class Tell(Value):
    text: str


class Notebook(Protocol):
    """The upper layer: appends each event before it answers."""

    name = "notebook"
    Request = Tell
    Observed = Said
    Record = Noted
    State = Notes

    def __init__(self, me: NodeId, rng: Random) -> None:
        super().__init__(me, rng)
        self.texts: list[str] = []

    def restore(self, record: Noted | Notes) -> None:
        if isinstance(record, Notes):
            self.texts = list(record.texts)
        else:
            self.texts.append(record.text)

    def observe(self, event: Said) -> None:
        self.texts.append(event.text)
        self.append(Noted(event.text))
        self.ask(Say(f"noted {event.text}"))

    def request(self, request: Tell) -> None:
        self.ask(Say(request.text), after=0)


def make() -> tuple[Stack, Wire, Notebook]:
    wire, notebook = Wire(A, Random(1)), Notebook(A, Random(1))
    return Stack([wire, notebook]), wire, notebook


def test_request_and_event_cross_layers_in_one_step() -> None:
    stack, _, notebook = make()
    outputs = stack.receive(1.0, B, Ping("hello"))
    assert outputs == [Append(Noted("hello"), 1), Send(B, Ping("noted hello"), after=1)]
    assert notebook.texts == ["hello"]


def test_step_effects_include_internal_effects() -> None:
    stack, _, _ = make()
    stack.receive(1.0, B, Ping("hello"))
    assert [type(effect).__name__ for effect in stack.effects] == ["Emit", "Append", "Ask", "Send"]


def test_lower_layer_waits_for_an_unsynced_record_that_it_depends_on() -> None:
    """Later messages from `wire` may depend on an earlier request."""
    stack, wire, _ = make()
    stack.receive(1.0, B, Ping("hello"))
    wire.start = lambda: wire.later(1.0, Patience())  # type: ignore[method-assign]
    stack.start(1.0)
    assert stack.wake(2.0, Wake(2.0, Patience())) == [Send(B, Ping("Patience at 2"), after=1)]


def test_independent_output_does_not_wait_for_the_disk() -> None:
    stack, _, notebook = make()
    notebook.append(Noted("earlier"))
    assert stack.request(1.0, Tell("now")) == [Send(B, Ping("now"), after=0)]


def test_unobserved_event_goes_to_the_application() -> None:
    alone = Stack([Wire(A, Random(1))])
    assert alone.receive(1.0, B, Ping("hello")) == [Emit(Said("hello"))]


def test_unknown_message_is_ignored_and_counted() -> None:
    stack, _, _ = make()
    assert stack.receive(1.0, B, Tell("not a message")) == []
    assert stack.ignored == 1


def test_guard_answers_refused_messages() -> None:
    """SEC-2: a refused message reaches no protocol."""
    asked: list[tuple[NodeId, Value]] = []

    def guard(sender: NodeId, message: Value) -> tuple[Value, ...] | None:
        asked.append((sender, message))
        answers = {"in": None, "out": (Ping("refused"),), "drop": ()}
        assert isinstance(message, Ping)
        return answers[message.text]

    stack = Stack([Wire(A, Random(0)), Notebook(A, Random(0))], guard=guard)
    assert stack.receive(1.0, B, Ping("out")) == [Send(B, Ping("refused"))]
    assert stack.effects == [Send(B, Ping("refused"))]
    assert stack.receive(2.0, B, Ping("drop")) == []
    assert stack.effects == []
    assert stack.receive(3.0, B, Ping("in")) != []
    assert stack.clock.now == 3.0
    assert asked == [(B, Ping(text)) for text in ("out", "drop", "in")]


def test_record_numbers_continue_after_a_restore() -> None:
    stack, _, notebook = make()
    stack.restore(7, Notes(("one", "two")))
    stack.restore(8, Noted("three"))
    assert notebook.texts == ["one", "two", "three"]
    assert stack.receive(0.0, B, Ping("four"))[0] == Append(Noted("four"), 9)


def test_snapshot_and_trim_carry_their_record_number() -> None:
    stack, _, notebook = make()
    stack.receive(1.0, B, Ping("one"))
    notebook.drain()
    notebook.snapshot(Notes(("one",)))
    notebook.trim(2)
    assert notebook.drain() == [Snapshot(Notes(("one",)), 1), Trim("notebook", 2)]


def test_stack_rejects_two_owners_of_the_same_type() -> None:
    class Twin(Protocol):
        name = "twin"
        Message = Ping

    with pytest.raises(AssertionError, match="Ping is the Message of both wire and twin"):
        Stack([Wire(A, Random(1)), Twin(A, Random(1))])


class Alarmed:
    """A stack with one protocol that sets timers, and its wake-up calls."""

    def __init__(self) -> None:
        self.wire = Wire(A, Random(1))
        self.stack = Stack([self.wire])

    def set(self, now: float, delay: float) -> list[object]:
        return self._run(now, lambda: self.wire.later(delay, Patience()))

    def cancel(self, now: float) -> list[object]:
        return self._run(now, lambda: self.wire.cancel(Patience()))

    def _run(self, now: float, act: object) -> list[object]:
        self.wire.start = act  # type: ignore[assignment, method-assign]
        return list(self.stack.start(now))


FIRED = [Send(B, Ping("Patience at 5"))]


def test_timer_fires_when_due() -> None:
    alarmed = Alarmed()
    assert alarmed.set(1.0, 4.0) == [Wake(5.0, Patience())]
    assert alarmed.stack.wake(5.0, Wake(5.0, Patience())) == FIRED
    assert alarmed.stack.wake(5.0, Wake(5.0, Patience())) == []


def test_cancelled_timer_does_not_fire() -> None:
    alarmed = Alarmed()
    alarmed.set(1.0, 4.0)
    assert alarmed.cancel(2.0) == []
    assert alarmed.stack.wake(5.0, Wake(5.0, Patience())) == []


def test_postponed_timer_is_rescheduled_only_after_the_old_wake_up_call() -> None:
    alarmed = Alarmed()
    alarmed.set(1.0, 2.0)
    assert alarmed.set(2.0, 3.0) == []
    assert alarmed.stack.wake(3.0, Wake(3.0, Patience())) == [Wake(5.0, Patience())]
    assert alarmed.stack.wake(5.0, Wake(5.0, Patience())) == FIRED


def test_earlier_timer_replaces_its_wake_up_call() -> None:
    alarmed = Alarmed()
    alarmed.set(1.0, 9.0)
    assert alarmed.set(1.0, 4.0) == [Wake(5.0, Patience())]
    assert alarmed.stack.wake(5.0, Wake(5.0, Patience())) == FIRED
    assert alarmed.set(5.0, 10.0) == [Wake(15.0, Patience())]
    assert alarmed.stack.wake(10.0, Wake(10.0, Patience())) == []


def test_timer_set_again_after_a_cancel_fires_once() -> None:
    alarmed = Alarmed()
    alarmed.set(1.0, 2.0)
    alarmed.cancel(1.0)
    assert alarmed.set(1.0, 4.0) == []
    assert alarmed.stack.wake(3.0, Wake(3.0, Patience())) == [Wake(5.0, Patience())]
    assert alarmed.stack.wake(5.0, Wake(5.0, Patience())) == FIRED
    assert alarmed.stack.wake(5.0, Wake(5.0, Patience())) == []


def test_early_wake_up_call_fires_no_timers_and_is_rescheduled() -> None:
    """This happens if a clock slows down, or if the driver rounds."""
    alarmed = Alarmed()
    alarmed.set(1.0, 4.0)
    assert alarmed.stack.wake(4.9, Wake(5.0, Patience())) == [Wake(5.0, Patience())]
    assert alarmed.stack.wake(5.0, Wake(5.0, Patience())) == FIRED


def test_fired_timer_is_dropped() -> None:
    """Some protocols set a timer for every message they wait for."""
    alarmed = Alarmed()
    alarmed.set(1.0, 4.0)
    alarmed.stack.wake(5.0, Wake(5.0, Patience()))
    assert not alarmed.stack._alarms


def test_self_resetting_timer_keeps_firing() -> None:
    alarmed = Alarmed()
    alarmed.set(1.0, 4.0)
    wire = alarmed.wire
    wire.timeout = lambda timer: wire.later(4.0, timer)  # type: ignore[method-assign]
    assert alarmed.stack.wake(5.0, Wake(5.0, Patience())) == [Wake(9.0, Patience())]
    assert alarmed.stack.wake(5.0, Wake(5.0, Patience())) == []
    assert alarmed.stack.wake(9.0, Wake(9.0, Patience())) == [Wake(13.0, Patience())]


def test_timer_cancelled_in_the_step_that_set_it_does_not_fire() -> None:
    alarmed = Alarmed()
    alarmed.set(1.0, 4.0)
    wire = alarmed.wire

    def again_and_not(timer: Value) -> None:
        wire.later(4.0, timer)
        wire.cancel(timer)

    wire.timeout = again_and_not  # type: ignore[method-assign]
    assert alarmed.stack.wake(5.0, Wake(5.0, Patience())) == [Wake(9.0, Patience())]
    assert alarmed.stack.wake(9.0, Wake(9.0, Patience())) == []
    assert alarmed.set(9.0, 1.0) == [Wake(10.0, Patience())]


class FakePort:
    """A port that records sends and timers."""

    def __init__(self, stack: Stack) -> None:
        self.clock, self.effects = Moment(2.0), list[Effect]()
        self.taken: list[tuple[object, ...]] = []
        self.stack = stack

    def send(self, to: NodeId, message: Value) -> None:
        self.taken.append((to, message))

    def later(self, delay: float, timer: Value) -> None:
        self.taken.append((delay, timer))

    def cancel(self, timer: Value) -> None:
        self.stack.disarm(timer)


def test_port_gets_messages_and_timers_and_finish_returns_other_outputs() -> None:
    stack, wire, _ = make()
    port = FakePort(stack)
    stack.attach(port)
    assert wire.now == 2.0
    wire.receive(B, Ping("hello"))
    wire.later(1.0, Patience())
    assert stack.finish(2.0) == [Append(Noted("hello"), 1)]
    assert port.taken == [(1.0, Patience()), (B, Ping("noted hello"))]


def test_detached_stack_keeps_its_time_and_timers() -> None:
    stack, wire, _ = make()
    port = FakePort(stack)
    stack.attach(port)
    assert stack.arm(5.0, Patience()) == Wake(5.0, Patience())
    wire.cancel(Patience())
    stack.detach()
    port.clock.now = 3.0
    assert wire.now == 2.0
    assert stack.wake(5.0, Wake(5.0, Patience())) == []
    assert stack.request(6.0, Tell("now")) == [Send(B, Ping("now"))]
    assert not port.taken
    assert not port.effects
    assert wire.now == 6.0


class Watcher(Protocol):
    name = "watcher"

    def down(self, peer: NodeId) -> None:
        self.emit(Said(f"{peer} is gone"))


def test_lost_peer_is_reported_once_to_each_watching_layer() -> None:
    wire, watcher = Wire(A, Random(1)), Watcher(A, Random(1))
    stack = Stack([wire, watcher])
    wire.watch(B)
    watcher.watch(B)
    assert stack.down(1.0, B) == [Emit(Said("b is gone"))] * 2
    assert stack.down(2.0, B) == []


def test_link_is_dropped_when_the_last_layer_unwatches_it() -> None:
    wire, watcher = Wire(A, Random(1)), Watcher(A, Random(1))
    stack = Stack([wire, watcher])
    wire.start = lambda: wire.watch(B)  # type: ignore[method-assign]
    watcher.start = lambda: watcher.watch(B)  # type: ignore[method-assign]
    assert stack.start(0.0) == [Watch(B), Watch(B)]
    wire.start = lambda: wire.unwatch(B)  # type: ignore[method-assign]
    watcher.start = lambda: None  # type: ignore[method-assign]
    assert stack.start(1.0) == []
    wire.start = lambda: None  # type: ignore[method-assign]
    watcher.start = lambda: watcher.unwatch(B)  # type: ignore[method-assign]
    assert stack.start(2.0) == [Unwatch(B)]
