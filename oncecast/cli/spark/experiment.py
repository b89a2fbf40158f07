"""`oncecast experiment`: repeat the experiments of the original report, and larger ones."""

from __future__ import annotations

import argparse
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from platform import python_version
from time import monotonic
from typing import TYPE_CHECKING

import oncecast
from oncecast.cli.connecting import (
    add_flag,
    add_json,
    add_option,
    complain,
    counted,
    positive,
    show,
)
from oncecast.cli.progress import Progress
from oncecast.cli.spark.pipeline import add_master, needs_spark, on_spark
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncecast.lab.experiments.runs import Run
    from oncecast.spark.experiments.finding import Experiment, Finding
    from oncecast.spark.experiments.report import Made

ALL = "all"
ABOUT = (
    "The experiments of the report on which this system builds (Vivoli, Costa, Silva: “ASD Project "
    "Phase 3”, 2019, section 7), repeated with its sizes and with larger ones. Unless stated "
    "otherwise, the runs are simulated: the real protocols exchange every message in virtual time. "
    "The same seeds give the same figures."
)


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    experiment = commands.add_parser(
        "experiment", help="repeat the experiments of the original report", description=__doc__
    )
    verbs = experiment.add_subparsers(title="commands", metavar="COMMAND", required=True)
    verb = verbs.add_parser("list", help="list the experiments")
    add_json(verb)
    verb.set_defaults(run=list_experiments)

    verb = verbs.add_parser("run", help="run experiments and write tables and figures")
    verb.add_argument("name", metavar="NAME", help="experiment name, or all")
    add_option(verb, "--out", "DIR", "directory for the report", "experiments")
    add_option(verb, "--nodes", "N", "maximum number of nodes", 10_000, positive)
    verb.add_argument("--seed", type=int, default=1, help="first seed (default: 1)")
    add_flag(verb, "--live", "also run small experiments on real processes")
    add_master(verb)
    add_json(verb)
    verb.set_defaults(run=run)


def list_experiments(arguments: argparse.Namespace) -> int:
    from oncecast.spark.experiments.names import ABOUT as KNOWN

    for name, about in KNOWN.items():
        show(arguments, {"name": name, "about": about}, f"{name:<16} {about}")
    return ExitStatus.OK


def run(arguments: argparse.Namespace) -> int:
    if missing := needs_spark():
        return complain(missing)
    from oncecast.lab.experiments.runs import Scale
    from oncecast.spark.experiments.catalogue import EXPERIMENTS, LIVE, NODES_MIN

    if arguments.name != ALL and arguments.name not in EXPERIMENTS:
        known = ", ".join([*EXPERIMENTS, ALL])
        fact = f"experiment {arguments.name!r} does not exist"
        return complain(f"{fact}; choose one of {known}", ExitStatus.NOT_FOUND)
    if arguments.nodes < NODES_MIN:
        fact = f"--nodes is {arguments.nodes}, but the source report uses {NODES_MIN}"
        return complain(f"{fact}; use {NODES_MIN} or more", ExitStatus.USAGE)
    chosen = [each for each in EXPERIMENTS.values() if arguments.name in (ALL, each.name)]
    chosen += [LIVE] if arguments.live else []
    scale = Scale(arguments.nodes, arguments.seed)
    runs = [each for experiment in chosen for each in experiment.runs(scale)]

    def job(spark: SparkSession) -> int:
        directory = Path(arguments.out)
        took = simulate(spark, runs, directory)
        return find(spark, arguments, directory, chosen, f"{took:.0f} s")

    return on_spark(arguments, job, light=True)


def simulate(spark: SparkSession, runs: list[Run], directory: Path) -> float:
    from oncecast.spark.experiments.running import pieces, simulate

    began = monotonic()
    with Progress("simulating", len(pieces(runs))) as progress:
        simulate(spark, runs, directory, lambda done: progress.step(by=done))
    return monotonic() - began


def find(
    spark: SparkSession,
    arguments: argparse.Namespace,
    directory: Path,
    chosen: list[Experiment],
    took: str = "",
) -> int:
    """Write tables and figures from the traces. Return exit status 0 if all checks pass."""
    from oncecast.spark.experiments import report
    from oncecast.spark.experiments.running import TRACES, found

    began, findings = monotonic(), []
    with Progress("tables and figures", len(chosen)) as progress:
        for finding in found(spark, directory, chosen):
            findings.append(finding)
            progress.step()
    taken = f"{monotonic() - began:.0f} s"
    facts = [("simulated in", took)] if took else []
    facts += [("tables and figures in", taken), ("traces", f"Parquet, in {directory / TRACES}")]
    about = made(spark, arguments, "Experiments", ABOUT, *facts)
    page = report.write(directory, about, findings)
    for finding in findings:
        show(arguments, report.fields(finding), in_words(finding))
    if not arguments.json:
        print(f"report: {page}")
    broken = sum(finding.broken for finding in findings)
    return complain(f"{counted(broken, 'check')} failed") if broken else ExitStatus.OK


def made(
    spark: SparkSession,
    arguments: argparse.Namespace,
    title: str,
    about: str,
    *facts: tuple[str, str],
) -> Made:
    from oncecast.spark.experiments.report import Made

    versions = f"oncecast {oncecast.__version__}, Spark {spark.version}, Python {python_version()}"
    command = f"oncecast {shlex.join(sys.argv[1:])}"
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    basis = (("made", when), ("with", versions), ("Spark on", arguments.master))
    return Made(title, about, command, (*basis, *facts))


def in_words(finding: Finding) -> str:
    from oncecast.lab.papers.tables import lines

    page = [f"# {finding.title}", "", finding.runs]
    for table in finding.tables:
        page += ["", f"## {table.title}", "", *lines(table)]
    return "\n".join(page)
