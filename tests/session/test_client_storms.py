"""Sessions through bad weather: nothing lost, nothing twice, nothing out of order."""

from __future__ import annotations

import pytest

from oncecast.pubsub.errors import Fenced
from tests.session.client_world import NODE, Publisher, Subscriber, World

LOSSY = {"loss": 0.2, "duplication": 0.1}


def storm(seed: int, *, total: int = 60, crashes: bool = True) -> World:
    world = World(seed, **LOSSY)
    subscribers = [Subscriber(world, "auto"), Subscriber(world, "books", books=True)]
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


@pytest.mark.parametrize("seed", range(60))
def test_loss_duplication_and_reordering_cost_nothing_but_time(seed: int) -> None:
    """SVC-2 SVC-3"""
    world = storm(seed, crashes=False)
    assert len(world.finish()) == 120


@pytest.mark.parametrize("seed", range(120))
def test_crashes_of_node_publishers_and_subscribers(seed: int) -> None:
    """SVC-2 SVC-3 SVC-8 SVC-10 SVC-11"""
    world = storm(seed)
    assert world.finish()


def test_fenced_is_the_name_of_the_end() -> None:
    assert Fenced(1).code == "fenced"
