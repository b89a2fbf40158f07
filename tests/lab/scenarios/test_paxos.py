"""In storms, all replicas agree on one order, and every put completes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from oncecast.lab.scenarios.draw import FAST, Draw, Load, Shape, draw
from oncecast.lab.scenarios.paxos import PAXOS, play_drawn
from oncecast.lab.scenarios.scenario import run
from oncecast.simulator.simulated import Simulation
from tests.seeds import seeds

pytestmark = pytest.mark.long

PER_TEST = 10
# `oncecast sim run paxos` runs any number of seeds.


@pytest.mark.parametrize("first", seeds(60, 600, PER_TEST))
def test_three_replicas_obey_every_rule_in_a_storm_and_then_complete_all_puts(
    first: int,
) -> None:
    """REP-1 REP-2 REP-4 REP-5: the rules in docs/protocols/multipaxos-tests.md hold throughout."""
    storms(3, first)


@pytest.mark.parametrize("first", seeds(30, 300, PER_TEST))
def test_five_replicas_obey_every_rule_in_a_storm_and_then_complete_all_puts(
    first: int,
) -> None:
    """REP-1 REP-2 REP-4 REP-5"""
    storms(5, first)


def test_new_member_catches_up_under_load_even_if_all_limits_are_one() -> None:
    """REP-2 REP-5: a snapshot of 757 bytes must not take 757 round trips."""
    one = replace(FAST, window_slots=1, window_bytes=1, accept_bytes=1, piece_bytes=1)
    storm(3, Draw(options=(one,), load=Load(Shape.FLOOD, puts=0, rate=60.0)))


def test_group_elects_a_leader_even_if_a_round_trip_takes_longer_than_resend() -> None:
    """REP-5: otherwise two candidates would keep ending each other's elections."""
    drawn = draw(11, 3)
    hasty = tuple(replace(each, resend=0.001) for each in drawn.options)
    storm(11, structs.replace(drawn, options=hasty, sessions=False))


def test_age_limit_allows_for_a_fast_clock() -> None:
    """SVC-9: the leader measured an age of 5.0 s when 4.8 s had passed."""
    outcome = run(PAXOS, 700746, 5)
    assert outcome.ok, f"{outcome.violation}\nreplay: {outcome.replay}"


def test_last_replica_restarts_with_a_damaged_record_that_it_has_repaired() -> None:
    """REP-1 REP-2: the group shrank from three replicas to one after the repair."""
    outcome = run(PAXOS, 3005739, 3)
    assert outcome.ok, f"{outcome.violation}\nreplay: {outcome.replay}"


def test_several_wrong_clocks_in_turn_expire_no_messages() -> None:
    """SVC-9: the first timestamp was an hour behind, and two more clocks jumped afterwards."""
    outcome = run(PAXOS, 3002473, 3)
    assert outcome.ok, f"{outcome.violation}\nreplay: {outcome.replay}"


def storm(seed: int, drawn: Draw) -> None:
    sim = Simulation(seed)
    play_drawn(sim, 3, drawn)
    sim.finish()


def storms(nodes: int, first: int) -> None:
    for seed in range(first, first + PER_TEST):
        outcome = run(PAXOS, seed, nodes)
        assert outcome.ok, f"{outcome.violation}\nreplay: {outcome.replay}"
