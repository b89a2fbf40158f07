"""Extreme messages from strangers, clients and nodes never stop a node or honest clients."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.kernel.codec import Codec
from oncecast.lab.extremes import Extremes
from oncecast.lab.scenarios.hostile import HOSTILE, play_insider
from oncecast.lab.scenarios.scenario import run
from oncecast.replication.messages import Accept, Beat, Promise
from oncecast.simulator.simulated import Simulation
from tests.seeds import seeds

KINDS = (Accept, Beat, Promise)


def attacked(seed: int) -> None:
    outcome = run(HOSTILE, seed, 3)
    assert outcome.ok, f"seed {seed}: {outcome.violation}"
    assert outcome.figures["attacks"] > 1500


def test_hostile_nodes_and_clients_do_not_disturb_honest_clients() -> None:
    """SEC-1, SEC-3"""
    attacked(1)


def test_extreme_messages_from_a_member_raise_no_exceptions() -> None:
    """SEC-1: members are trusted, but numbers must not overflow."""
    assert play_insider(Simulation(1), 3) > 900


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(20, 200))
def test_honest_clients_are_served_during_attacks_with_many_seeds(seed: int) -> None:
    """SEC-1, SEC-3"""
    attacked(seed)
    play_insider(Simulation(seed), 4)


def test_extreme_messages_are_accepted_by_the_codec() -> None:
    extremes, codec = Extremes(Random(1), KINDS, ("a", "b")), Codec(KINDS)
    drawn = [extremes.message() for _ in range(100)]
    assert {type(each) for each in drawn} == set(KINDS)
    assert all(type(codec.decode(codec.encode(each))) is type(each) for each in drawn)
    assert any(isinstance(each, Beat) and each.known >= 2**63 for each in drawn)
    again = Extremes(Random(1), KINDS, ("a", "b"))
    assert [codec.encode(again.message()) for _ in drawn] == list(map(codec.encode, drawn))
