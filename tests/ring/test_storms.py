"""In random runs of rings and moves, each message arrives once and in order."""

from __future__ import annotations

import pytest

from oncecast.lab.scenarios.ring import RING
from oncecast.lab.scenarios.ring_draw import draw
from oncecast.lab.scenarios.scenario import run
from tests.ring.walks import Walk
from tests.seeds import seeds

pytestmark = pytest.mark.long


@pytest.mark.parametrize("seed", seeds(15, 150))
def test_readers_get_every_message_once_and_in_order_in_random_runs(seed: int) -> None:
    """REP-4 REP-5 REP-6 NET-6 SVC-2 SVC-3 SVC-10: `oncecast sim run ring` runs more of them."""
    outcome = run(RING, seed)
    assert outcome.ok, f"{outcome.violation}\n{outcome.replay}"


def test_slow_group_catches_up_with_partitioned_producers() -> None:
    """SVC-2: producers do not resend stored batches."""
    outcome = run(RING, 63087)
    assert outcome.ok, f"{outcome.violation}\n{outcome.replay}"


def test_group_that_lost_a_disk_regains_a_stopped_member() -> None:
    """REP-5: without this member the group has no majority."""
    outcome = run(RING, 700617)
    assert outcome.ok, f"{outcome.violation}\n{outcome.replay}"


def test_each_seed_draws_its_own_reproducible_run() -> None:
    """REP-4"""
    drawn = [draw(seed, 8) for seed in range(300)]
    assert drawn[:9] == [draw(seed, 8) for seed in range(9)]
    assert {each.replicas for each in drawn} == {1, 2, 3, 5}
    assert {each.processes for each in drawn} == set(range(3, 9))
    assert {each.wall for each in drawn} >= {0.0, 86400.0}
    watched = [each for each in drawn if each.habits.age]
    assert len(watched) > 60
    assert (
        max(each.wall for each in watched) < 1.0
    )  # a larger error would remove messages too early
    windows = {each.window_slots for some in drawn for each in some.options}
    assert (min(windows), max(windows)) == (1, 1024)
    suspicions = [{each.suspicion for each in some.options} for some in drawn]
    assert any(len(each) > 1 for each in suspicions)
    assert min(each.seconds for each in drawn) < 2.0
    assert max(each.seconds for each in drawn) > 10.0


def test_random_moves_neither_lose_nor_duplicate_messages() -> None:
    """REP-6 SVC-2 SVC-3"""
    for seed in range(60):
        Walk(seed).go()
