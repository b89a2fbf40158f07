"""Each message is stored once, even if several state directories share one client name."""

from __future__ import annotations

from random import Random

import pytest

from tests.client.session.client_world import Publisher, Subscriber, World

DIRECTORIES = 7
PUT_BY_EACH = 12


def directories(seed: int) -> World:
    """Start and kill processes one at a time, each with a random directory.

    Finally, let one process per directory finish its work.
    """
    world, rng = World(seed), Random(seed)
    sim = world.sim
    subscriber = Subscriber(world, "auto")
    world.run_until(lambda: subscriber.positioned)
    users: list[Publisher] = []
    for number in range(DIRECTORIES):
        users.append(Publisher(world, f"user{number}", PUT_BY_EACH, durable=True, name="same"))
        killed(world, users[-1], rng.uniform(0.0, 0.3))
    for _ in range(2 * DIRECTORIES):
        user = rng.choice(users)
        sim.restart(user.me)
        killed(world, user, rng.uniform(0.0, 0.3))
    for user in users:
        sim.restart(user.me)
        finished(world, user)
        killed(world, user, 0.0)
    return world


def finished(world: World, user: Publisher) -> None:
    world.run_until(lambda: user.put == PUT_BY_EACH and idle(world, user))


def killed(world: World, user: Publisher, after: float) -> None:
    world.sim.run(until=world.sim.now + after)
    world.sim.crash(user.me)


def idle(world: World, user: Publisher) -> bool:
    stack = world.sim.nodes[user.me].stack
    assert stack is not None
    return not stack.protocols[0].unsettled  # type: ignore[attr-defined]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_each_message_is_stored_once_even_if_many_directories_share_a_name(seed: int) -> None:
    """SVC-2 SVC-8"""
    assert directories(seed).finish()
