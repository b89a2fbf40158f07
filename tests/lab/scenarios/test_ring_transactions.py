"""Transactions across groups are all or nothing in random runs (TXN-2)."""

from __future__ import annotations

import pytest

from oncecast.lab.scenarios import ring_transactions
from oncecast.lab.scenarios.ring_transactions import MOMENTS, RING_TRANSACTIONS, draw
from oncecast.lab.scenarios.scenario import run
from oncecast.simulator.simulated import Simulation
from tests.seeds import seeds

pytestmark = pytest.mark.long


@pytest.mark.parametrize("seed", seeds(4, 200))
def test_transactions_are_all_or_nothing_in_random_runs(seed: int) -> None:
    """TXN-2: `oncecast sim run ring-transactions` runs more of them."""
    outcome = run(RING_TRANSACTIONS, seed)
    assert outcome.ok, f"{outcome.violation}\n{outcome.replay}"


# A crash at the first or second time that this moment occurs, in an otherwise quiet ring.
@pytest.mark.parametrize("again", [0, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("moment", MOMENTS)
def test_crash_at_each_moment_of_both_phases(
    moment: str, again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TXN-2"""
    crashes: list[ring_transactions.Crashes] = []

    def arm(self: ring_transactions.Crashes) -> None:
        self._armed[moment] = again
        crashes.append(self)
        if moment.split()[-1] in ("AskOutcomes", "Outcomes"):  # only sent if a client dies
            self._armed["client sends DecideTransaction"] = 0

    monkeypatch.setattr(ring_transactions.Crashes, "arm", arm)
    drawn = ring_transactions.quiet(draw(again, 3))
    sim = Simulation(again)
    ring_transactions.play_drawn(sim, drawn)
    sim.finish()
    assert crashes[0].hit.get(moment) == 1
