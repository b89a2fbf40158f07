"""NET-2, NET-3: partial views survive storms, and carry durable broadcasts."""

from __future__ import annotations

import pytest

from oncecast.lab.scenarios.hyparview import GOSSIP, HYPARVIEW
from oncecast.lab.scenarios.scenario import run

pytestmark = pytest.mark.long


@pytest.mark.parametrize(("nodes", "seeds"), [(2, 20), (4, 60), (9, 30), (20, 12), (40, 3)])
def test_views_stay_bounded_and_end_up_symmetric_and_connected(nodes: int, seeds: int) -> None:
    """NET-2"""
    for seed in range(seeds):
        outcome = run(HYPARVIEW, seed, nodes)
        assert outcome.ok, f"{outcome.violation}\n{outcome.replay}"


def test_each_node_delivers_each_message_once_over_partial_views() -> None:
    """NET-2 NET-3"""
    for seed in range(15):
        outcome = run(GOSSIP, seed)
        assert outcome.ok, f"{outcome.violation}\n{outcome.replay}"


def test_equal_seeds_give_equal_runs() -> None:
    """NET-1 NET-2"""
    assert run(HYPARVIEW, 3).trace == run(HYPARVIEW, 3).trace
