"""Check claims about Scribe at small sizes; `oncecast sim papers` runs them at full size."""

from __future__ import annotations

import pytest

from oncecast.lab.papers import scribe as scribe_paper
from oncecast.lab.papers.tables import Experiment

pytestmark = pytest.mark.long


def test_all_members_get_every_message_and_trees_recover_within_three_heartbeats() -> None:
    """NET-5: Castro et al., sections III and IV."""
    table = scribe_paper.trees(Experiment(nodes=120))
    assert all(must.holds for must in table.must)


def test_lookup_takes_logarithmic_hops_and_publish_sends_one_copy_per_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NET-4 NET-5"""
    monkeypatch.setattr(scribe_paper, "LOOKUPS", 300)
    table = scribe_paper.cost(Experiment(nodes=100))
    assert [row[0] for row in table.rows] == [10, 30, 100]
    assert all(must.holds for must in table.must)
