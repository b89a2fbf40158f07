"""NET-1, NET-3, SVC-10: broadcast messages during a storm of faults."""

from __future__ import annotations

import pytest

from oncecast.lab.scenarios.broadcast import BROADCAST
from oncecast.lab.scenarios.scenario import run

pytestmark = pytest.mark.long

SEEDS = range(100)


@pytest.mark.parametrize("nodes", [2, 5, 9])
def test_every_message_reaches_every_node_once(nodes: int) -> None:
    for seed in SEEDS if nodes == 5 else range(20):
        outcome = run(BROADCAST, seed, nodes)
        assert outcome.ok, f"{outcome.violation}\n{outcome.replay}"
        assert outcome.figures["messages"] > 0


def test_hundred_seeds_cover_every_kind_of_fault() -> None:
    """A storm without faults would prove nothing."""
    met: dict[str, int] = {}
    for seed in range(100):
        for kind, times in run(BROADCAST, seed).figures["strikes"].items():
            met[kind] = met.get(kind, 0) + times
    assert len(met) == 13
    assert min(met.values()) >= 20
