"""`oncecast sim sweep`: run a scenario with many seeds and sizes on Spark."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oncecast.cli.connecting import add_json, add_option, complain, counted
from oncecast.cli.connecting import show as show_result
from oncecast.cli.progress import Progress
from oncecast.cli.spark.pipeline import add_master, on_spark
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS_MAX = 10_000_000


def configure(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    sizes: Callable[[str], list[int]],
    seeds: Callable[[str], range],
) -> None:
    verb = verbs.add_parser(
        "sweep", help="run a scenario with many seeds and sizes on Spark", description=__doc__
    )
    verb.add_argument("scenario", metavar="SCENARIO", help="scenario name; see `sim list`")
    verb.add_argument(
        "--nodes",
        type=sizes,
        metavar="N,M",
        help="numbers of nodes, separated by commas (default: as in the scenario)",
    )
    verb.add_argument(
        "--seeds",
        type=seeds,
        default=range(100),
        metavar="A..B",
        help="range of seeds for each number of nodes (default: 0..99)",
    )
    add_option(verb, "--out", "DIR", "directory for the results (default: sweeps/SCENARIO)")
    add_master(verb)
    add_json(verb)
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from oncecast.lab.scenarios.catalogue import SCENARIOS

    scenario = SCENARIOS.get(arguments.scenario)
    if scenario is None:
        known = ", ".join(sorted(SCENARIOS))
        fact = f"scenario {arguments.scenario!r} does not exist"
        return complain(f"{fact}; choose one of {known}", ExitStatus.NOT_FOUND)
    sizes = arguments.nodes or [scenario.nodes]
    if min(sizes) < scenario.nodes_min:
        remedy = "raise --nodes"
        fact = f"{scenario.name} needs at least {scenario.nodes_min} nodes"
        return complain(f"{fact}; {remedy}", ExitStatus.USAGE)
    if len(sizes) * len(arguments.seeds) > RUNS_MAX:
        return complain(
            f"too many runs (limit {RUNS_MAX:,}); use fewer seeds or sizes", ExitStatus.USAGE
        )
    directory = arguments.out or f"sweeps/{scenario.name}"
    # Python does most of the work; Spark handles only a few rows.
    return on_spark(arguments, lambda spark: sweep(spark, arguments, sizes, directory), light=True)


def sweep(
    spark: SparkSession, arguments: argparse.Namespace, sizes: list[int], directory: str
) -> int:
    from oncecast.spark import sweep as job
    from oncecast.spark.farm import cores_of

    pieces = job.divided(arguments.scenario, sizes, arguments.seeds, cores_of(spark))
    with Progress(arguments.scenario, len(pieces)) as progress:
        outcomes = job.sweep(spark, pieces, directory, lambda done: progress.step(by=done))
    counts = [row.asDict() for row in job.by_size(outcomes).collect()]
    failed = sum(each["failed"] for each in counts)
    named = job.failures(outcomes).limit(job.SHOWN).collect() if failed else []
    failures = [row.asDict() for row in named]
    lines = [in_words(each) for each in counts]
    for each in failures:
        lines.append(f"seed {each['seed']} at {each['virtual_seconds']} s: {each['violation']}")
        lines.append(f"  replay: {each['replay']}")
    left = failed - len(failures)
    lines += [f"... and {left} more (first {job.SHOWN} shown)"] if left else []
    lines.append(f"outcomes: {directory}")
    fields: dict[str, Any] = {"sizes": counts, "failures": failures, "outcomes": directory}
    show_result(arguments, fields, "\n".join(lines))
    return ExitStatus.FAILURE if failed else ExitStatus.OK


def in_words(each: dict[str, Any]) -> str:
    seeds = counted(each["seeds"], "seed")
    verdict = f"{each['failed']} of {seeds} FAILED" if each["failed"] else "all passed"
    return (
        f"{each['scenario']}, {counted(each['nodes'], 'node')}: {seeds}, "
        f"{each['events']:,} events in {each['seconds']:.1f} s: {verdict}"
    )
