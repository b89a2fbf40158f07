"""A client whose record was deleted stores nothing twice, and reports unknown outcomes."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from oncecast.client.session import local
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.node.assemble import assemble
from oncecast.simulator.simulated import Build
from oncecast.wire.errors import Forgotten
from oncecast.wire.limits import LIMITS
from tests.client.session.client_world import NODE, Publisher, Subscriber, World

IDLE = 20.0
SOON_IDLE = msgspec.structs.replace(LIMITS, producer_idle_us=int(IDLE * 1e6))


class Forgetful(World):
    """A node that deletes idle producer records after a short time."""

    def build(self, node: Build) -> None:
        super().build(self._node)

    def _node(self, me: NodeId, rng: Random) -> Stack:
        return assemble(me, rng, limits=SOON_IDLE).stack


class Absent(Publisher):
    """A publisher whose puts may fail with Forgotten."""

    forgotten = 0

    def hear(self, event: Value) -> None:
        if isinstance(event, local.NotStored) and isinstance(event.why, Forgotten):
            self.forgotten += 1
            self.fenced = True  # so the checks do not expect all of its messages
        else:
            super().hear(event)


def away_for_long(seed: int) -> None:
    """Kill a publisher before it gets its answers; restart it after its record is deleted."""
    world = Forgetful(seed)
    sim = world.sim
    subscriber = Subscriber(world, "auto")
    world.run_until(lambda: subscriber.positioned)
    publisher = Absent(world, "publisher", 60, durable=True)
    sim.run(until=sim.now + 0.5)
    fronts = sim.partition([NODE], [publisher.me], one_way=True)
    sim.run(until=sim.now + 0.5)
    sim.crash(publisher.me)
    sim.repair(fronts)
    stored = len(subscriber.seen)
    sim.run(until=sim.now + 2 * IDLE)
    sim.restart(publisher.me)
    world.run_until(lambda: publisher.put == 60)
    sim.run(until=sim.now + 5.0)
    world.finish()
    assert publisher.forgotten
    assert len(subscriber.seen) > stored  # the publisher continues with its unsent messages


def idle_for_long(seed: int) -> None:
    """Let a publisher put nothing until the node has deleted its record, and then continue."""
    world = Forgetful(seed)
    subscriber = Subscriber(world, "auto")
    world.run_until(lambda: subscriber.positioned)
    publisher = Publisher(world, "publisher", 30)
    world.run_until(lambda: len(publisher.promised) == 30)
    world.sim.run(until=world.sim.now + 2 * IDLE)
    publisher.puts = 60
    publisher.soon(0.0, publisher.go_on)
    world.run_until(lambda: len(publisher.promised) == len(subscriber.seen) == 60)
    assert len(world.finish()) == 60


@pytest.mark.parametrize("seed", range(2))
def test_deleted_producer_record_does_not_cause_duplicates(seed: int) -> None:
    """SVC-2 SVC-9"""
    away_for_long(seed)


@pytest.mark.parametrize("seed", range(2))
def test_client_continues_to_put_after_a_long_idle_period(seed: int) -> None:
    """SVC-2 SVC-9"""
    idle_for_long(seed)
