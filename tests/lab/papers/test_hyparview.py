"""NET-2: claims of the HyParView paper (Leitao, Pereira, Rodrigues, DSN 2007), with 1,000 nodes.

The paper uses 10,000, as does `oncecast sim papers --only hyparview`.
"""

from __future__ import annotations

import pytest

from oncecast.lab.papers.hyparview import flood, reliability, survive
from oncecast.lab.papers.hyparview_overlay import Overlay, apart
from oncecast.lab.scenarios.hyparview_graph import clustering, distances, part_sizes

pytestmark = pytest.mark.long

NODES = 1000


@pytest.fixture(scope="module")
def overlay() -> Overlay:
    """Build an overlay as in the paper: nodes join one by one through one contact, then cycles."""
    overlay = Overlay(1, NODES, lambda text: None)
    overlay.stabilize(10)
    return overlay


def test_active_views_are_symmetric_nearly_full_and_connected(overlay: Overlay) -> None:
    """NET-2. The active view is small and symmetric; the overlay stays connected."""
    links = overlay.links()
    views = [overlay.view(name) for name in overlay.names]
    assert sum(map(len, links)) == sum(len(view.active) for view in views) > 4.9 * NODES
    assert reliability(overlay) == 1.0
    # A view lacks one peer right after a promotion, until the next shuffle.
    assert all(view.passive_max - 1 <= len(view.passive) <= view.passive_max for view in views)


def test_overlay_has_the_path_lengths_and_clustering_of_a_random_graph(overlay: Overlay) -> None:
    """NET-2. With 10,000 nodes the paper reports a clustering of 0.00092 and a mean path of 6.385.
    Ten times as many nodes add log 10 / log 4 to a path, and divide the clustering by ten.
    """
    links = overlay.links()
    assert distances(links).mean == pytest.approx(6.385 - 1.66, rel=0.05)
    assert 0.0 < clustering(links) < 0.0092


@pytest.mark.parametrize(("share", "least"), [(0.3, 0.999), (0.8, 0.999), (0.9, 0.99)])
def test_messages_reach_nearly_all_nodes_after_mass_failures(
    overlay: Overlay, share: float, least: float
) -> None:
    """NET-2. No losses are visible while fewer than 90% of the nodes fail."""
    survival = apart(overlay, survive, share)
    assert survival.mean >= least
    assert share >= 0.8 or survival.healed in (0, 1, 2)


def half_fail(overlay: Overlay, share: float) -> list[float]:
    overlay.fail(round(share * NODES))
    return flood(overlay, 5)


def test_only_the_first_message_after_a_failure_misses_many_nodes(overlay: Overlay) -> None:
    """NET-2. The views are repaired while messages are sent, before any cycle."""
    first, *others = apart(overlay, half_fail, 0.5)
    assert first < 0.99
    assert min(others) > 0.999


def test_distances_in_a_ring_are_computed_correctly() -> None:
    """The figures above rely on this arithmetic."""
    ring = [[(node - 1) % 6, (node + 1) % 6] for node in range(6)]
    found = distances(ring)
    assert (found.mean, found.farthest_mean, found.reached) == ((1 + 1 + 2 + 2 + 3) / 5, 3.0, 36)
    assert clustering(ring) == 0.0
    assert clustering([[1, 2], [0, 2], [0, 1]]) == 1.0
    assert part_sizes([[1], [0], []]) == [2, 2, 1]
