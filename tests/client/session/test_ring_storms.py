"""A topic moves to another group without disturbing its publishers and subscribers."""

from __future__ import annotations

import pytest

from oncecast.client.session.client import ClientSession
from tests.client.session.client_world import TOPIC, Publisher, Subscriber
from tests.client.session.ring_world import NEW, OLD, STAYS, RingWorld

pytestmark = pytest.mark.long


def move(seed: int, *, total: int = 60, trouble: bool = False, **weather: float) -> RingWorld:
    """Use two topics while one of them moves."""
    world = RingWorld(seed, **weather)
    readers = [Subscriber(world, "auto"), Subscriber(world, "books", stores_offset=True)]
    readers.append(Subscriber(world, "other", topic=STAYS))
    world.run_until(lambda: all(each.positioned for each in readers))
    publishers = [
        Publisher(world, "plain", total),
        Publisher(world, "durable", total, durable=True),
        Publisher(world, "neighbour", total, topic=STAYS),
    ]
    world.sim.run(until=world.sim.now + 0.5)
    world.found(NEW)
    if trouble:
        replicas = [*world.replicas[OLD], *world.replicas[NEW]]
        world.chaos(world.sim.now + 15.0, [*replicas, *world.nodes, *world.apps])
        world.sim.run(until=world.sim.now + 20.0)
    world.run_until(lambda: all(each.put == total for each in publishers))
    world.run_until(lambda: world.owns(NEW, TOPIC) and not world.owns(OLD, TOPIC))
    world.sim.run(until=world.sim.now + (60.0 if trouble else 20.0))
    return world


def test_clients_follow_a_topic_that_moves() -> None:
    """SVC-2 SVC-3 SVC-13 REP-6"""
    world = move(1, total=150)  # the publishers are still active when the move ends
    assert len(world.finish(TOPIC)) == 300
    assert len(world.finish(STAYS)) == 150
    for app in world.apps.values():
        stack = world.sim.nodes[app.me].stack
        assert stack is not None
        (session,) = stack.protocols
        assert isinstance(session, ClientSession)
        assert session.routes.of(app.topic).group in (NEW if app.topic == TOPIC else OLD, "")
        assert app.starts == 1
    for reader in (app for app in world.apps.values() if isinstance(app, Subscriber)):
        assert reader.ended is None


@pytest.mark.parametrize("seed", range(3))
def test_no_messages_are_lost_if_a_topic_moves_over_a_lossy_network(seed: int) -> None:
    """SVC-2 SVC-3"""
    world = move(seed, loss=0.1, duplication=0.1)
    assert len(world.finish(TOPIC)) == 120
    assert len(world.finish(STAYS)) == 60


@pytest.mark.parametrize("seed", range(6))
def test_no_messages_are_lost_if_nodes_and_clients_crash_during_a_move(seed: int) -> None:
    """SVC-2 SVC-3 SVC-10 SVC-11 SVC-13"""
    world = move(seed, trouble=True)
    assert world.finish(TOPIC)
    assert world.finish(STAYS)
