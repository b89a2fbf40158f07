"""All experiments by name, for the command line, the report and the tests."""

from __future__ import annotations

from oncecast.lab.experiments import failures as exp_failures
from oncecast.lab.experiments import paxos as exp_paxos
from oncecast.lab.experiments import publish as exp_publish
from oncecast.lab.experiments import ring as exp_ring
from oncecast.lab.experiments.runs import Run, Scale
from oncecast.spark.experiments import balance, convergence, costs, failing, live, replicas
from oncecast.spark.experiments.finding import Experiment
from oncecast.spark.experiments.names import ABOUT

NODES_MIN = 30  # the largest system of the source report


def failing_runs(scale: Scale) -> list[Run]:
    """Return the runs with failures, and runs without failures for comparison."""
    repair = exp_ring.repair_runs(scale)
    return [*exp_failures.runs(scale), *repair, *exp_publish.runs(scale)]


PARTS = {
    "scribe-messages": (exp_publish.runs, costs.scribe_messages),
    "convergence": (exp_publish.runs, convergence.convergence),
    "chord-messages": (exp_publish.runs, costs.chord_messages),
    "load-balance": (exp_ring.ownership_runs, balance.load_balance),
    "failures": (failing_runs, failing.failures),
    "paxos": (exp_paxos.runs, replicas.multi_paxos),
}
EXPERIMENTS = {name: Experiment(name, about, *PARTS[name]) for name, about in ABOUT.items()}

# This experiment is not part of `all`, because it runs in real time.
LIVE = Experiment("live", "the same experiments with real processes", live.runs, live.live)
