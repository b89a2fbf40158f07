"""No message is lost, repeated or reordered at any crash point or pair of crash points.

`run_crash_points([BY_NAME[point], ...], seed, reply)` replays a failing run.
"""

from __future__ import annotations

import pytest

from oncecast.wire.errors import NoSuchTopic, NotSubscribed
from tests.client.session.client_world import NODE, Publisher, Subscriber
from tests.crashpoints import BY_NAME, POINTS, Point
from tests.lab.scenarios.crash_world import REPLIES, CrashWorld, run_crash_points

pytestmark = pytest.mark.long

SINGLE_SEEDS = 5
SINGLES = [(point, reply) for point in POINTS for reply in REPLIES]
PAIRS = [(one, other, "") for one in POINTS for other in POINTS] + [
    (one, other, reply)
    for at, one in enumerate(POINTS)
    for other in POINTS[at:]
    for reply in REPLIES
    if reply
]
RUNS = SINGLE_SEEDS * len(SINGLES) + len(PAIRS)


def survive(points: list[Point], seed: int, reply: str) -> CrashWorld:
    try:
        return run_crash_points(points, seed, reply)
    except Exception as error:
        names = ", ".join(f"BY_NAME[{str(point)!r}]" for point in points)
        raise AssertionError(
            f"{error!r} in run_crash_points([{names}], {seed}, {reply!r})"
        ) from error


@pytest.mark.parametrize("name", BY_NAME)
def test_crash_at_any_point_only_delays_messages(name: str) -> None:
    """SVC-2 SVC-3 SVC-8 SVC-10 SVC-11 SVC-13: replies arrive, are lost, repeated or late."""
    for reply in REPLIES:
        for seed in range(SINGLE_SEEDS):
            assert survive([BY_NAME[name]], seed, reply).hit == [name]


@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", BY_NAME)
def test_crashes_at_any_two_points_only_delay_messages(name: str, half: int) -> None:
    """SVC-2 SVC-3 SVC-8 SVC-10 SVC-11 SVC-13"""
    for seed, (one, other, reply) in enumerate(PAIRS):
        if str(one) == name and seed % 2 == half:
            assert survive([one, other], seed, reply).hit == [name, str(other)]


def test_each_seed_crashes_a_process_at_a_different_moment() -> None:
    """Otherwise all seeds would repeat the same run."""
    point = BY_NAME["node: applied, not answered"]
    assert len({survive([point], seed, "").sim.done for seed in range(SINGLE_SEEDS)}) > 1


# -- beyond the guarantees: the node has lost its disk --


@pytest.mark.parametrize("seed", range(SINGLE_SEEDS))
def test_node_that_lost_its_disk_ends_readers_and_stores_new_puts_once(seed: int) -> None:
    """SVC-7 SVC-10: the node's state is lost. Readers get an error, and new puts are stored
    once."""
    world = CrashWorld(seed)
    reader = Subscriber(world, "reader", name="reader")
    world.run_until(lambda: reader.positioned)
    publisher = Publisher(world, "durable", 10, durable=True)
    world.run_until(lambda: len(publisher.promised) == len(reader.seen) == 10)
    world.sim.crash(NODE)
    disk = world.sim.nodes[NODE].disk
    assert disk is not None
    disk.wipe()
    world.sim.restart(NODE)
    world.run_until(lambda: reader.ended is not None)
    assert isinstance(reader.ended, NoSuchTopic | NotSubscribed)
    newer = Subscriber(world, "newer")
    world.run_until(lambda: newer.positioned)
    world.more(10)
    world.run_until(lambda: len(publisher.promised) == 20)
    world.sim.run(until=world.sim.now + 20.0)
    assert [int(value.rsplit(b"/")[-1]) for value in newer.seen] == list(range(10, 20))
