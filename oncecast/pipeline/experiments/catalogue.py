"""The experiments by name, for the command line, the report and the tests."""

from __future__ import annotations

from oncecast.pipeline.experiments import balance, convergence, costs, failing, live, replicas
from oncecast.pipeline.experiments.finding import Experiment
from oncecast.scenarios import exp_failures, exp_paxos, exp_publish, exp_ring
from oncecast.scenarios.exp_runs import Run, Scale

NODES_MIN = 30  # the source's largest system


def failing_runs(scale: Scale) -> list[Run]:
    """Where nothing fails, they are compared too."""
    repair = exp_ring.repair_runs(scale)
    return [*exp_failures.runs(scale), *repair, *exp_publish.runs(scale)]


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "scribe-messages",
            "messages received in the Scribe layer",
            exp_publish.runs,
            costs.scribe_messages,
        ),
        Experiment(
            "convergence",
            "how long until all messages have reached all nodes",
            exp_publish.runs,
            convergence.convergence,
        ),
        Experiment(
            "chord-messages",
            "Chord messages sent, by the number of nodes",
            exp_publish.runs,
            costs.chord_messages,
        ),
        Experiment(
            "load-balance",
            "how evenly topics are owned, with virtual positions too",
            exp_ring.place_runs,
            balance.load_balance,
        ),
        Experiment(
            "failures",
            "reliability under failures, structured against unstructured",
            failing_runs,
            failing.failures,
        ),
        Experiment(
            "paxos",
            "one order at all replicas, through storms and elections",
            exp_paxos.runs,
            replicas.multi_paxos,
        ),
    )
}

# Not one of `all`: it needs the real time that it takes.
LIVE = Experiment("live", "the same on real processes", live.runs, live.live)
