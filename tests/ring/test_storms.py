"""Rings of groups in a storm, and moves by dice: each message comes once and in order."""

from __future__ import annotations

import pytest

from oncecast.scenarios.ring import RING
from oncecast.scenarios.scenario import run
from tests.ring.walks import Walk

pytestmark = pytest.mark.long


@pytest.mark.parametrize("seed", range(15))
def test_everybody_has_everything_once_and_in_order_after_a_storm(seed: int) -> None:
    """REP-4 REP-5 REP-6 NET-6 SVC-2 SVC-3 SVC-10: `oncecast sim run ring` runs more of them."""
    outcome = run(RING, seed, 8 if seed % 3 == 0 else 5)
    assert outcome.ok, f"{outcome.violation}\n{outcome.replay}"


def test_a_move_goes_well_whatever_happens_next() -> None:
    """REP-6 SVC-2 SVC-3"""
    for seed in range(60):
        Walk(seed).go()
