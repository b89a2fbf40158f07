"""What a dead process has sent arrives late, and takes nothing from the process after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncecast.kernel.protocol import NodeId
from oncecast.pubsub import commands as do
from oncecast.pubsub.errors import NotStaged
from oncecast.session import local
from tests.session.client_world import NODE, Publisher, Subscriber, World
from tests.session.desk import ANN, BOB, Desk, packed, reading
from tests.session.lone import Lone

TOTAL = 60


def soon(world: World, reached: Callable[[], bool]) -> None:
    """Run until it is so, and not much longer."""
    for _ in range(1000):
        if reached():
            return
        world.sim.run(until=world.sim.now + 0.02)
    raise AssertionError("what should have happened did not, in 20 seconds")


def die(world: World, app: Publisher | Subscriber) -> list[Any]:
    """What the process sends from now on stays in the network; then it is killed for good."""
    fronts = world.sim.hold([app.me], [NODE], one_way=True)
    world.sim.run(until=world.sim.now + 1.0)
    world.sim.crash(app.me)
    app.life += 1  # nothing that it wanted to do is done any more
    return fronts


def late_open(seed: int) -> None:
    """A publisher dies while its OpenProducer is in the network; the next one has its name."""
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
    """Reads on for a subscription that exists."""

    def begin(self) -> None:
        self.ask(local.Read(self.topic, self.subscription))


def late_attach(seed: int) -> None:
    """A reader dies while its Attach is in the network; the next one reads on."""
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


def test_late_copy_of_a_refused_publish_has_no_effect() -> None:
    """PIPE-2: the client was told of the refusal, and has staged the missing part since."""
    desk = Desk()
    reading(desk)
    desk.call(ANN, stage("a"))
    lone = Lone().start().ask(local.Do(9, do.PublishStaged("source", 0, ("a", "b"), 0)))
    call = lone.call
    (refused,) = desk.send(BOB, call)
    why = NotStaged("source", 0, "b")
    assert lone.hear(refused).told == [local.Finished(9, why)]
    desk.call(ANN, stage("b"))
    earlier_connection = NodeId("client/earlier-bob")
    desk.send(earlier_connection, call)
    assert desk.service.machine.bounds("topic") == (0, 0)


def stage(part: str) -> do.Stage:
    data = packed(part.encode())
    return do.Stage("source", 0, part, "topic", 1, len(data), 0, data)


@pytest.mark.parametrize("seed", range(2))
def test_late_open_of_a_dead_publisher_does_not_fence_the_next(seed: int) -> None:
    """SVC-8"""
    late_open(seed)


@pytest.mark.parametrize("seed", range(2))
def test_late_attach_of_a_dead_reader_does_not_fence_the_next(seed: int) -> None:
    """SVC-8"""
    late_attach(seed)
