"""Replicas, their disks and their members in a storm: one order, and all of it in the end."""

from __future__ import annotations

import pytest

from oncecast.scenarios.paxos import PAXOS
from oncecast.scenarios.scenario import run

pytestmark = pytest.mark.long

PER_TEST = 10
SEEDS = {3: 120, 5: 60}  # by replicas; `oncecast sim run paxos` goes through as many as you like


@pytest.mark.parametrize(
    ("nodes", "first"),
    [(nodes, first) for nodes, seeds in SEEDS.items() for first in range(0, seeds, PER_TEST)],
)
def test_a_group_keeps_every_rule_in_a_storm_and_completes_all_in_the_calm(
    nodes: int, first: int
) -> None:
    """REP-1 REP-2 REP-4 REP-5: the rules of docs/protocols/multipaxos.md, after every event."""
    for seed in range(first, first + PER_TEST):
        outcome = run(PAXOS, seed, nodes)
        assert outcome.ok, f"{outcome.violation}\nreplay: {outcome.replay}"
