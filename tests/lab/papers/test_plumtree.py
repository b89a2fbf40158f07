"""NET-3: claims of the Plumtree paper (Leitao, Pereira, Rodrigues, SRDS 2007), with 400 nodes.

The paper uses 10,000, as does `oncecast sim papers --only plumtree`.
"""

from __future__ import annotations

import pytest

from oncecast.lab.papers import plumtree as plumtree_paper
from oncecast.lab.papers.hyparview_overlay import apart
from oncecast.lab.papers.plumtree import Trees, of_many_senders, of_one_sender, survive
from oncecast.lab.papers.tables import Experiment
from oncecast.lab.scenarios.hyparview_graph import part_sizes

pytestmark = pytest.mark.long

NODES = 400


@pytest.fixture(scope="module")
def trees() -> Trees:
    return Trees(Experiment(), NODES)


def flood_and_links(trees: Trees, share: float) -> tuple[float, int, float]:
    """Return a message's reliability and number of payloads, and the share of nodes that its links
    reach."""
    trees.overlay.fail(round(share * NODES))
    alive = trees.overlay.alive()
    sizes = dict(zip(alive, part_sizes(trees.overlay.links()), strict=True))
    sender = max(alive, key=sizes.__getitem__)
    cost = trees.broadcast(sender)
    return cost.reliability, cost.payloads, sizes[sender] / len(alive)


def test_first_message_is_flooded_over_all_links(trees: Trees) -> None:
    """NET-3. An eager flood sends 39,984 payloads to 9,999 receivers, an RMR of 3."""
    reliability, payloads, counted = apart(trees, flood_and_links, 0.0025)
    assert (reliability, counted) == (1.0, 1.0)
    assert payloads == pytest.approx(4 * NODES, rel=0.02)


def test_flood_reaches_at_least_all_nodes_connected_by_links(trees: Trees) -> None:
    """HyParView floods can therefore be measured by counting links."""
    reliability, _, counted = apart(trees, flood_and_links, 0.6)
    assert 1.0 > counted > 0.5
    assert reliability >= counted


@pytest.mark.parametrize(("measure", "threshold"), [(of_one_sender, 3), (of_many_senders, 7)])
def test_stable_tree_carries_each_payload_once_to_each_node(
    trees: Trees, measure: plumtree_paper.Measure, threshold: int
) -> None:
    """NET-3. Any sender needs 9,999 payloads for 10,000 nodes."""
    for cost in apart(trees, measure, threshold):
        assert (cost.payloads, cost.reliability) == (NODES - 1, 1.0)


@pytest.mark.parametrize("share", [0.4, 0.8])
def test_tree_is_repaired_within_two_cycles_of_a_mass_failure(trees: Trees, share: float) -> None:
    """NET-3. Reliability and redundancy recover within two cycles."""
    _, _, _, (reliability, rmr), *_ = apart(trees, survive, share)
    assert reliability == 1.0
    assert rmr <= 0.05


def test_steady_failures_lose_no_messages(trees: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    """NET-3. 0.5% of the nodes fail in each cycle, and reliability stays at 100%."""
    monkeypatch.setattr(plumtree_paper, "CHURN_CYCLES", 15)
    for cost in apart(trees, plumtree_paper.wear_down, 2):
        assert cost.reliability == 1.0


def test_recovery_delivers_every_message_despite_ten_percent_packet_loss() -> None:
    """NET-3"""
    table = plumtree_paper.lossy(Experiment(), NODES)
    assert all(must.holds for must in table.must)
