"""The complete service in storms with options drawn from the seed: see `scenarios.service`."""

from __future__ import annotations

import pytest

from oncecast.lab.scenarios.scenario import run
from oncecast.lab.scenarios.service import SERVICE
from tests.lab.scenarios.test_service_mutants import (
    cursor_moves_at_send,
    half_a_batch_is_new,
    no_dedup,
)
from tests.mutants import Mutant, Plant, must_be_noticed
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


def test_followers_catch_up_although_their_leader_has_lost_the_next_entry() -> None:
    """REP-1: only the leader knew that the entry was decided, and it has taken a snapshot since."""
    storm(63442)


def test_each_seed_draws_a_different_service() -> None:
    """SVC-10: groups of one to five nodes, with and without each kind of client."""
    assert SERVICE.draw is not None
    draws = [SERVICE.draw(seed, SERVICE.nodes) for seed in range(100)]
    assert {draw.nodes for draw in draws} == {1, 2, 3, 4, 5}  # type: ignore[attr-defined]
    assert len({repr(draw) for draw in draws}) == 100


@pytest.mark.parametrize("plant", [no_dedup, cursor_moves_at_send, half_a_batch_is_new])
def test_storms_notice_a_missing_rule_within_50_seeds(plant: Plant) -> None:
    """SVC-2 SVC-3: the mutants come from other suites."""
    must_be_noticed(Mutant(plant.__name__, plant, storm, 50))
