"""Sessions never lose, repeat or reorder messages, even if network, nodes and clients fail."""

from __future__ import annotations

import pytest

from oncecast.simulator import simulated
from oncecast.simulator.latency import Latency, Uniform
from oncecast.wire.errors import Fenced
from tests.client.session.client_world import NODE, Publisher, Subscriber, World
from tests.seeds import seeds

pytestmark = pytest.mark.long

SLOW_DISK = Uniform(0.01, 0.3)


def storm(
    seed: int, *, total: int = 60, crashes: bool = True, disk: Latency = simulated.SSD
) -> World:
    world = World(seed, loss=0.2, duplication=0.1, sync_latency=disk)
    subscribers = [Subscriber(world, "auto"), Subscriber(world, "books", stores_offset=True)]
    world.run_until(lambda: all(each.positioned for each in subscribers))
    publishers = [
        Publisher(world, "plain", total),
        Publisher(world, "durable", total, durable=True),
    ]
    if crashes:
        world.chaos(world.sim.now + 15.0, [NODE, *world.apps])
    world.sim.run(until=world.sim.now + 20.0)
    world.run_until(lambda: all(each.put == total for each in publishers))
    world.sim.run(until=world.sim.now + 60.0)
    return world


@pytest.mark.parametrize("seed", seeds(30, 240))
def test_loss_duplication_and_reordering_only_delay_messages(seed: int) -> None:
    """SVC-2 SVC-3"""
    world = storm(seed, crashes=False)
    assert len(world.finish()) == 120


@pytest.mark.parametrize("seed", seeds(60, 480))
def test_no_messages_are_lost_when_nodes_and_clients_crash(seed: int) -> None:
    """SVC-2 SVC-3 SVC-8 SVC-10 SVC-11"""
    world = storm(seed)
    assert world.finish()


@pytest.mark.parametrize("seed", seeds(30, 240))
def test_no_messages_are_lost_in_crashes_with_slow_disks(seed: int) -> None:
    """SVC-2 SVC-10"""
    world = storm(seed, disk=SLOW_DISK)
    assert world.finish()


def fencing(seed: int, total: int = 60) -> tuple[World, Publisher, Publisher]:
    """Start a second process with the same name while the first is running."""
    world = World(seed, loss=0.1, duplication=0.1)
    subscriber = Subscriber(world, "auto")
    world.run_until(lambda: subscriber.positioned)
    older = Publisher(world, "older", total, name="same")
    world.run_until(lambda: len(older.promised) > 5)
    newer = Publisher(world, "newer", total, name="same")
    world.run_until(lambda: len(newer.promised) == total)
    world.sim.run(until=world.sim.now + 30.0)
    return world, older, newer


@pytest.mark.parametrize("seed", seeds(20, 160))
def test_newer_publisher_with_the_same_name_fences_the_older_publisher(seed: int) -> None:
    """SVC-8"""
    world, older, newer = fencing(seed)
    world.finish()
    assert older.fenced or len(older.promised) == 60
    assert not newer.fenced


@pytest.mark.parametrize("seed", seeds(10, 80))
def test_newer_reader_of_a_subscription_fences_the_older_reader(seed: int) -> None:
    """SVC-8"""
    world = World(seed, loss=0.1, duplication=0.1)
    older = Subscriber(world, "older", name="same")
    world.run_until(lambda: older.positioned)
    publisher = Publisher(world, "publisher", 60)
    world.run_until(lambda: len(older.seen) > 5)
    newer = Subscriber(world, "newer", name="same")
    newer.seen = (
        older.seen
    )  # The readers share one list: a message delivered to either is marked the next time.
    world.run_until(lambda: older.ended is not None)
    assert isinstance(older.ended, Fenced)
    world.run_until(lambda: len(newer.seen) == len(publisher.promised) == 60)
    world.finish()
