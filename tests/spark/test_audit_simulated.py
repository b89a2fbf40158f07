"""PIPE-4: audit the traces of simulated clients whose nodes crash."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from oncecast.history.operation import History
from oncecast.lab.scenarios.histories import Histories
from oncecast.lab.scenarios.scenario import run
from oncecast.lab.scenarios.service import SERVICE
from oncecast.simulator.simulated import Simulation
from tests.spark.audit_here import audited
from tests.spark.simulated_trace import trace_of

pytestmark = pytest.mark.long

SEEDS = (1, 2, 3, 4, 10, 16)  # in 10, the node stores an ack after a repeated subscribe


@pytest.fixture
def histories(monkeypatch: pytest.MonkeyPatch) -> list[History]:
    """Return a list that collects simulation histories."""
    found: list[History] = []

    def finish(self: Histories, sim: Simulation) -> None:
        found.append(self.recorder.history)

    monkeypatch.setattr(Histories, "finish", finish)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_simulated_run_has_no_faults_until_a_delivery_is_removed(
    histories: list[History], seed: int
) -> None:
    assert run(SERVICE, seed).ok
    text = trace_of(histories[0])
    assert audited({"trace": text}) == []
    lines = [msgspec.json.decode(line) for line in text.splitlines()]
    at, lost = next(
        (at, one)
        for at, (one, other) in enumerate(pairwise(lines))
        if one["kind"] == other["kind"] == "delivery"
        and (one["session"], one["offset"] + 1) == (other["session"], other["offset"])
    )
    left = [{**each, "line": at} for at, each in enumerate(lines[:at] + lines[at + 1 :], 1)]
    faults = audited({"trace": b"".join(msgspec.json.encode(each) + b"\n" for each in left)})
    assert lost["offset"] in {each.about["offset"] for each in faults}
    assert {each.fault for each in faults} <= {"lost", "not redelivered", "out of order"}
