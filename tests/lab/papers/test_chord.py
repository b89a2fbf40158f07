"""Check claims of the Chord papers at small sizes; `oncecast sim papers` uses full size."""

from __future__ import annotations

import pytest

from oncecast.lab.papers import chord as chord_paper
from oncecast.lab.papers import chord_walks
from oncecast.lab.papers.chord_churn import Churn
from oncecast.lab.papers.tables import Experiment

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def few_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chord_paper, "LOOKUPS", 1000)


def test_path_length_is_half_the_logarithm_of_the_node_count() -> None:
    """NET-4: Stoica et al., section VI-C, figure 10."""
    table = chord_paper.path_lengths(Experiment(nodes=128))
    assert len(table.rows) == 2
    for row in table.rows:
        assert row[3] == pytest.approx(row[2], rel=0.1)
        assert row[-1] == 1000


def test_evenly_spaced_ids_explain_shorter_paths_at_any_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NET-4: Stoica et al., section VI-C: our paths are shorter than the formula."""
    monkeypatch.setattr(chord_walks, "WALKS", 6000)
    table = chord_walks.spacing(Experiment(nodes=256))
    assert len(table.rows) == 2
    assert all(must.holds for must in table.must)
    for _, _, _, moved, by_chance, _ in table.rows:
        assert moved == pytest.approx(-0.18, abs=0.06)
        assert by_chance == pytest.approx(-0.14, abs=0.08)


def test_lookups_survive_the_failure_of_half_the_nodes_without_stabilization(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NET-4: Stoica et al., section VI-D, table II."""
    monkeypatch.setattr(chord_paper, "FAILED", (0.0, 0.5))
    monkeypatch.setattr(chord_paper, "PATHS_FAILED", (3.84, 5.09))
    monkeypatch.setattr(chord_paper, "TIMEOUTS_FAILED", (0.0, 5.10))
    table = chord_paper.mass_failures(Experiment(nodes=1000))
    for _, paper, path, *_, right in table.rows:
        assert path == pytest.approx(paper, rel=0.1)
        assert right == 1000


def test_no_lookup_fails_under_churn() -> None:
    """NET-4: Stoica et al., section VI-E, table III, where up to 16 of 10,000 lookups fail."""
    churn = Churn(seed=1, nodes=100, rate=0.4)
    churn.play(lookups=120)
    assert len(churn.answered) > 100
    assert churn.failed == 0


def test_keys_are_distributed_over_nodes_as_in_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """NET-4: Stoica et al., section VI-B, figures 8 and 9; EXP-4."""
    monkeypatch.setattr(chord_paper, "KEYS", 50_000)
    monkeypatch.setattr(chord_paper, "LOAD_SEEDS", 2)
    table = chord_paper.load(Experiment(nodes=1000))
    assert [row[-1] for row in table.rows] == [
        pytest.approx(4.6, rel=0.15),
        pytest.approx(1.6, rel=0.15),
    ]
