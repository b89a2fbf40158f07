"""Replicas, their disks and their members in a storm: one order, and all of it in the end."""

from __future__ import annotations

import pytest

from oncecast.scenarios.paxos import PAXOS
from oncecast.scenarios.scenario import run
from tests.seeds import seeds

pytestmark = pytest.mark.long

PER_TEST = 10
# `oncecast sim run paxos` goes through as many as you like.


@pytest.mark.parametrize("first", seeds(60, 600, PER_TEST))
def test_three_replicas_keep_every_rule_in_a_storm_and_complete_all_in_the_calm(first: int) -> None:
    """REP-1 REP-2 REP-4 REP-5: the rules of docs/protocols/multipaxos.md, after every event."""
    storms(3, first)


@pytest.mark.parametrize("first", seeds(30, 300, PER_TEST))
def test_five_replicas_keep_every_rule_in_a_storm_and_complete_all_in_the_calm(first: int) -> None:
    """REP-1 REP-2 REP-4 REP-5"""
    storms(5, first)


def storms(nodes: int, first: int) -> None:
    for seed in range(first, first + PER_TEST):
        outcome = run(PAXOS, seed, nodes)
        assert outcome.ok, f"{outcome.violation}\nreplay: {outcome.replay}"
