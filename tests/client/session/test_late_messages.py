"""Late messages from a dead process do not disturb its successor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncecast.broker.answered import ANSWERED_MAX
from oncecast.broker.service import Service
from oncecast.client.session import local
from oncecast.kernel.protocol import NodeId
from oncecast.wire import commands as do
from oncecast.wire.errors import Fenced, NotStaged
from oncecast.wire.frames import Answer
from oncecast.wire.results import Appended, TopicDeleted
from tests.broker.desk import ANN, BOB, Desk, packed, producing, put, reading
from tests.client.session.client_world import NODE, App, Publisher, Subscriber, World
from tests.client.session.lone import Lone

TOTAL = 60


def soon(world: World, reached: Callable[[], bool]) -> None:
    """Run until the condition holds."""
    for _ in range(1000):
        if reached():
            return
        world.sim.run(until=world.sim.now + 0.02)
    raise AssertionError("the condition does not hold after 20 seconds")


def die(world: World, app: Publisher | Subscriber) -> list[Any]:
    """Delay all further messages from the process, then kill it."""
    fronts = world.sim.hold([app.me], [NODE], one_way=True)
    world.sim.run(until=world.sim.now + 1.0)
    world.sim.crash(app.me)
    app.starts += 1  # so that its pending requests are not executed
    return fronts


def late_open(seed: int) -> None:
    """Kill a publisher whose OpenProducer is in flight, and start another with its name."""
    world = World(seed)
    subscriber = Subscriber(world, "auto")
    world.run_until(lambda: subscriber.positioned)
    fronts = die(world, Publisher(world, "dead", TOTAL, name="same"))
    living = Publisher(world, "living", TOTAL, name="same")
    soon(world, lambda: len(living.promised) > 5)
    world.sim.repair(fronts)
    world.run_until(lambda: living.put == TOTAL)
    world.sim.run(until=world.sim.now + 10.0)
    assert not living.fenced
    assert len(living.promised) == TOTAL


class Resumed(Subscriber):
    """Reads an existing subscription."""

    def begin(self) -> None:
        self.ask(local.Read(self.topic, self.subscription))


def late_attach(seed: int) -> None:
    """Kill a reader whose Attach is in flight, and start another reader."""
    world = World(seed)
    first = Subscriber(world, "first", name="same")
    world.run_until(lambda: first.positioned)
    world.sim.crash(first.me)
    fronts = die(world, Resumed(world, "dead", name="same"))
    living = Resumed(world, "living", name="same")
    soon(world, lambda: living.positioned)
    world.sim.repair(fronts)
    Publisher(world, "publisher", TOTAL)
    world.run_until(lambda: len(living.seen) == TOTAL or living.ended is not None)
    assert living.ended is None


def test_late_duplicate_of_a_refused_publish_has_no_effect() -> None:
    """PIPE-2: after the refusal, the client has staged the missing part."""
    desk = Desk()
    reading(desk)
    desk.call(ANN, stage("a"))
    lone = Lone().start().ask(local.Do(9, do.PublishStaged("source", 0, ("a", "b"), 0)))
    call = lone.call
    (refused,) = desk.send(BOB, call)
    why = NotStaged("source", 0, "b")
    assert lone.hear(refused).events == [local.Finished(9, why)]
    desk.call(ANN, stage("b"))
    earlier_connection = NodeId("client/earlier-bob")
    desk.send(earlier_connection, call)
    assert desk.service.machine.bounds("topic") == (0, 0)


def late_publish() -> None:
    """Stage, publish and close a source; then deliver copies of the first calls."""
    desk = Desk()
    reading(desk)
    call = Lone().start().ask(local.Do(9, do.PublishStaged("source", 0, ("a",), 0))).call
    desk.call(ANN, stage("a"))
    desk.send(BOB, call)
    desk.call(ANN, do.CloseSource("source", 0))
    earlier_connection = NodeId("client/earlier-bob")
    desk.call(earlier_connection, stage("a"))
    desk.send(earlier_connection, call)
    assert desk.service.machine.bounds("topic") == (0, 1)


def test_late_calls_to_a_closed_source_publish_nothing() -> None:
    """PIPE-2: closing the source deletes the record that identifies duplicates."""
    late_publish()


def late_delete() -> None:
    """Repeat DeleteTopic over another connection; the first copy arrives last."""
    desk = Desk()
    desk.call(ANN, do.CreateTopic("topic", 0))
    lone = Lone().start().ask(local.Do(9, do.DeleteTopic("topic", 0)))
    call = lone.call
    assert desk.send(BOB, call) == [Answer(call.id, TopicDeleted(already=False))]
    reading(desk)
    assert desk.call(ANN, put(producing(desk, ANN), 0, b"x")) == Appended(0, 1, kept=True)
    earlier_connection = NodeId("client/earlier-bob")
    already = Answer(call.id, TopicDeleted(already=True))
    assert desk.send(earlier_connection, call) == [already]
    desk.restart()
    assert desk.send(BOB, call) == [already]
    assert desk.service.machine.bounds("topic") == (0, 1)


def test_late_duplicate_of_a_delete_does_not_delete_messages() -> None:
    """SVC-10 SVC-13: another client has created the topic again, and has put a message there."""
    late_delete()


class Caller(App):
    """Makes calls and records their outcomes."""

    def __init__(self, world: World, me: str) -> None:
        self.outcomes: dict[int, Any] = {}
        super().__init__(world, me)

    def hear(self, event: Any) -> None:
        if isinstance(event, local.Finished):
            self.outcomes[event.ticket] = event.outcome

    def done(self, ticket: int, command: Any) -> Any:
        self.ask(local.Do(ticket, command))
        soon(self.world, lambda: ticket in self.outcomes)
        return self.outcomes[ticket]


def leader_of(world: World) -> NodeId | None:
    for node in world.nodes:
        state = world.sim.nodes[node]
        if state.stack is not None and not state.paused:
            service = next(each for each in state.stack.protocols if isinstance(each, Service))
            if service.leading:
                return node
    return None


def late_unsubscribe(seed: int) -> None:
    """Hold back the first copy of an answered Unsubscribe until its node leads again."""
    world = World(seed, replicas=3)
    sim = world.sim
    ann, bob = Caller(world, "ann"), Caller(world, "bob")
    subscribe = do.Subscribe("topic", "sub", do.FromNew(), 0)
    assert not ann.done(1, subscribe).already
    soon(world, lambda: leader_of(world) is not None)
    first = leader_of(world)
    assert first is not None
    fronts = sim.hold([ann.me], [first], one_way=True)
    ann.ask(local.Do(2, do.Unsubscribe("topic", "sub", 0)))
    sim.run(until=sim.now + 0.5)
    sim.pause(first)
    soon(world, lambda: 2 in ann.outcomes)
    assert not ann.outcomes[2].already
    again = bob.done(1, subscribe)
    assert not again.already
    sim.resume(first)
    while leader_of(world) != first:
        other = leader_of(world)
        if other is None:
            sim.run(until=sim.now + 0.1)
            continue
        sim.pause(other)
        sim.run(until=sim.now + 3.0)
        sim.resume(other)
    sim.repair(fronts)
    sim.run(until=sim.now + 5.0)
    assert bob.done(2, subscribe).already


@pytest.mark.parametrize("seed", range(2))
def test_late_duplicate_of_an_unsubscribe_keeps_the_new_subscription(seed: int) -> None:
    """SVC-6 SVC-13: the leader changed between the copies."""
    late_unsubscribe(seed)


def prepared(world: World, caller: Caller) -> None:
    """Put messages, of which another subscription keeps all."""
    caller.done(1, do.Subscribe("topic", "keeps", do.FromNew(), 0))
    caller.done(2, do.Subscribe("topic", "sub", do.FromNew(), 0))
    publisher = Publisher(world, "publisher", TOTAL, topic="topic")
    soon(world, lambda: publisher.put == TOTAL)


def late_seek_of_a_reader(seed: int) -> None:
    """Lose the answer to a reader's seek. Another client seeks before the second copy arrives."""
    world = World(seed)
    sim, caller = world.sim, Caller(world, "caller")
    prepared(world, caller)
    reader = Caller(world, "reader")
    reader.ask(local.Read("topic", "sub"))
    sim.run(until=sim.now + 1.0)
    fronts = sim.partition([NODE], [reader.me], one_way=True)
    reader.ask(local.Move(9, "topic", "sub", do.FromOffset(3)))
    soon(world, lambda: place(world)[1] == 3)
    fronts += sim.partition([reader.me], [NODE], one_way=True)
    sim.bounce(NODE, 0.1)  # so that it forgets the answers of the connection
    moved = caller.done(3, seek(7))
    sim.repair(fronts)
    soon(world, lambda: 9 in reader.outcomes)
    assert reader.outcomes[9].cursor == 3
    sim.run(until=sim.now + 5.0)
    assert place(world) == (moved.epoch, 7)


def late_seek_of_a_caller() -> None:
    """Deliver all copies of an answered seek after more calls than the group keeps answers of."""
    desk = Desk()
    reading(desk)
    desk.call(ANN, put(producing(desk, ANN), 0, b"a", b"b", b"c"))
    lone = Lone().start()
    first = lone.ask(local.Do(9, seek(1))).call
    (refused,) = desk.send(BOB, first)
    lone.hear(refused)
    second = lone.call
    (done,) = desk.send(BOB, second)
    assert isinstance(done, Answer)
    assert lone.hear(done).events == [local.Finished(9, done.result)]
    desk.call(ANN, seek(2))
    for number in range(ANSWERED_MAX):
        desk.call(ANN, do.CreateTopic("other", 0, token=f"token {number}"))
    subscription = desk.service.machine.registry.topics["topic"].subscriptions["sub"]
    before = subscription.epoch, subscription.cursor
    for copy in (first, second):
        (answer,) = desk.send(NodeId("client/earlier-bob"), copy)
        assert answer == Answer(copy.id, Fenced(before[0]))
    assert (subscription.epoch, subscription.cursor) == before


def seek(offset: int) -> do.Seek:
    return do.Seek("topic", "sub", do.FromOffset(offset), 0, f"token of {offset}")


def place(world: World) -> tuple[int, int]:
    machine = world.sim.protocol(NODE, Service).machine
    subscription = machine.registry.topics["topic"].subscriptions["sub"]
    return subscription.epoch, subscription.cursor


@pytest.mark.parametrize("seed", range(2))
def test_reader_seek_takes_effect_once_even_if_its_answer_is_lost(seed: int) -> None:
    """SVC-1 SVC-6: this seek takes effect before the other seek."""
    late_seek_of_a_reader(seed)


def test_late_copies_of_a_seek_have_no_effect_after_any_number_of_calls() -> None:
    """SVC-6 SVC-13"""
    late_seek_of_a_caller()


def stage(part: str) -> do.Stage:
    data = packed(part.encode())
    return do.Stage("source", 0, part, "topic", 1, len(data), 0, data)


@pytest.mark.parametrize("seed", range(2))
def test_late_open_from_a_dead_publisher_does_not_fence_its_successor(seed: int) -> None:
    """SVC-8"""
    late_open(seed)


@pytest.mark.parametrize("seed", range(2))
def test_late_attach_from_a_dead_reader_does_not_fence_its_successor(seed: int) -> None:
    """SVC-8"""
    late_attach(seed)
