"""Three replicas with publishers and subscribers on a lossy network deliver exactly once."""

from __future__ import annotations

import pytest

from oncecast.replication.paxos import Paxos
from tests.client.session.client_world import Publisher, Subscriber, World

pytestmark = pytest.mark.long

PER_TEST = 5


def paxos(world: World, node: int) -> Paxos:
    stack = world.sim.nodes[world.nodes[node]].stack
    assert stack is not None
    group = stack.protocols[0]
    assert isinstance(group, Paxos)
    return group


def storm(seed: int, *, total: int = 60, clients_crash: bool = True) -> World:
    world = World(seed, replicas=3, loss=0.1, duplication=0.1)
    world.run_until(lambda: len(paxos(world, 0).state.membership.config.members) == 3)
    subscribers = [Subscriber(world, "auto"), Subscriber(world, "books", stores_offset=True)]
    world.run_until(lambda: all(each.positioned for each in subscribers))
    publishers = [
        Publisher(world, "plain", total),
        Publisher(world, "durable", total, durable=True),
    ]
    world.chaos(world.sim.now + 15.0, [*world.nodes, *(world.apps if clients_crash else ())])
    world.sim.run(until=world.sim.now + 20.0)
    world.run_until(lambda: all(each.put == total for each in publishers))
    world.sim.run(until=world.sim.now + 60.0)
    return world


@pytest.mark.parametrize("first", range(0, 30, PER_TEST))
def test_three_replicas_in_a_storm_deliver_each_message_once_and_in_order(first: int) -> None:
    """SVC-2 SVC-3 SVC-10 REP-1 REP-5: `storm(seed)` replays a failing seed."""
    for seed in range(first, first + PER_TEST):
        try:
            assert storm(seed).finish()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
