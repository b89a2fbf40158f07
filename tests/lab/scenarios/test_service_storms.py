"""A node delivers exactly once despite crashes, a failing disk and a lossy network."""

from __future__ import annotations

import pytest

from tests.client.session.promises import storm
from tests.seeds import seeds

pytestmark = pytest.mark.long

PER_TEST = 25


@pytest.mark.parametrize("first", seeds(150, 1200, PER_TEST))
def test_single_node_in_a_storm_delivers_each_message_once_and_in_order(first: int) -> None:
    """SVC-2, SVC-3, SVC-4, SVC-9, SVC-10: `storm(seed)` replays a failing seed."""
    total = {"snapshots": 0, "carried": 0, "cut": 0}
    for seed in range(first, first + PER_TEST):
        try:
            counts = storm(seed).counts
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        for name, count in counts.items():
            total[name] += count
    assert min(total.values()) >= PER_TEST - 1, f"too few events happened: {total}"
