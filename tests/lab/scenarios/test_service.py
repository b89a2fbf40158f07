"""Run the complete service in storms with random options: see `scenarios.service`."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from oncecast.broker.administering import Administering
from oncecast.lab.scenarios.scenario import run
from oncecast.lab.scenarios.service import SERVICE, play_drawn
from oncecast.lab.scenarios.service_draw import draw
from oncecast.simulator.simulated import Simulation
from oncecast.wire.commands import SetLimits
from oncecast.wire.results import LimitsSet
from tests.lab.scenarios.test_service_mutants import (
    cursor_moves_at_send,
    no_dedup,
    producer_counts_too_few_messages,
)
from tests.mutants import Mutant, Plant, assert_detected
from tests.seeds import seeds

pytestmark = pytest.mark.long

PER_TEST = 10
# `oncecast sim run service` runs any number of seeds.


def storm(seed: int) -> None:
    outcome = run(SERVICE, seed)
    assert outcome.ok, f"{outcome.violation}\nreplay: {outcome.replay}"


@pytest.mark.parametrize("first", seeds(30, 600, PER_TEST))
def test_service_in_a_storm_delivers_each_message_once_and_in_order(first: int) -> None:
    """SVC-2 SVC-3 SVC-8 SVC-9 SVC-10 SVC-11 SVC-13 REP-5: the answers to all clients are
    linearizable, too."""
    for seed in range(first, first + PER_TEST):
        storm(seed)


def test_followers_catch_up_even_if_their_leader_has_lost_the_next_entry() -> None:
    """REP-1: only the leader knew that the entry was decided, and it has taken a snapshot since."""
    drawn = draw(63442, SERVICE.nodes)
    habits = replace(drawn.habits, limits=(), closes=False)
    sim = Simulation(63442)
    play_drawn(sim, replace(drawn, habits=habits))
    sim.finish()


def test_each_seed_draws_a_different_service() -> None:
    """SVC-10: groups have one to five nodes, with and without each kind of client."""
    assert SERVICE.draw is not None
    draws = [SERVICE.draw(seed, SERVICE.nodes) for seed in range(100)]
    assert {draw.nodes for draw in draws} == {1, 2, 3, 4, 5}  # type: ignore[attr-defined]
    assert len({repr(draw) for draw in draws}) == 100


def test_some_seeds_lower_the_limits_and_close_sources() -> None:
    """SVC-10"""
    habits = [draw(seed, SERVICE.nodes).habits for seed in range(100)]
    assert 10 < sum(bool(each.limits) for each in habits) < 50
    assert 10 < sum(each.closes for each in habits) < 50


def each_replica_has_its_own_limits(patch: pytest.MonkeyPatch) -> None:
    def ignore(self: Administering, slot: int, command: SetLimits) -> LimitsSet:
        return LimitsSet()

    patch.setattr(Administering, "set_limits", ignore)


@pytest.mark.parametrize(
    "plant",
    [
        no_dedup,
        cursor_moves_at_send,
        producer_counts_too_few_messages,
        each_replica_has_its_own_limits,
    ],
)
def test_storms_detect_a_missing_rule_within_50_seeds(plant: Plant) -> None:
    """SVC-2 SVC-3: most of the mutants come from other suites."""
    assert_detected(Mutant(plant.__name__, plant, storm, 50))
