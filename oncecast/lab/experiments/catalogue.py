"""The experiments' scenarios by name, and a function that returns the rows of a run."""

from __future__ import annotations

from oncecast.lab.experiments import failures as exp_failures
from oncecast.lab.experiments import live as exp_live
from oncecast.lab.experiments import paxos as exp_paxos
from oncecast.lab.experiments import publish as exp_publish
from oncecast.lab.experiments import ring as exp_ring
from oncecast.lab.experiments.runs import Row, Run, Scenario

SCENARIOS: dict[str, Scenario] = {
    exp_publish.SCENARIO: exp_publish.play,
    exp_failures.SCENARIO: exp_failures.play,
    exp_ring.REPAIR: exp_ring.repair,
    exp_ring.OWNERSHIP: exp_ring.ownership,
    exp_paxos.STORM: exp_paxos.storm,
    exp_paxos.ELECTION: exp_paxos.election,
    exp_live.SCENARIO: exp_live.play,
}


def rows(run: Run) -> list[Row]:
    """Return all rows from a run. A violation or an exception becomes a row `violation`."""
    found: list[Row] = []
    try:
        SCENARIOS[run.scenario](run, lambda *row: found.append(row))
    except Exception as error:  # noqa: BLE001  # any exception of a protocol is a finding
        found.append((0.0, "violation", "", f"{type(error).__name__}: {error}", 0.0))
    return found
