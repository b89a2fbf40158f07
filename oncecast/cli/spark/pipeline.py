"""`oncecast pipeline run`: run Spark jobs, on this machine or on a cluster."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncecast.cli.connecting import (
    SERVER,
    add_connection,
    add_json,
    add_option,
    complain,
    counted,
    positive,
    report_error,
    show,
)
from oncecast.cli.login import login_of
from oncecast.errors import ExitStatus, OncecastError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET = {"spark.ui.showConsoleProgress": "false"}  # Progress draws its own bars
SMALL_BYTES = 64 << 20
FAULTS = ("lost", "duplicated", "out of order", "stored twice", "stored out of order")


# Long: one table of commands and their options.
def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    pipeline = commands.add_parser("pipeline", help="run Spark jobs", description=__doc__)
    verbs = pipeline.add_subparsers(title="verbs", metavar="VERB", required=True)
    run = verbs.add_parser("run", help="run a job")
    jobs = run.add_subparsers(title="jobs", metavar="JOB", required=True)

    archive = jobs.add_parser("archive", help="write topics to Parquet, each message once")
    archive.add_argument("directory", metavar="DIR", help="directory for the files")
    archive.add_argument("--topics", metavar="T,...", help="names of topics, separated by commas")
    add_option(archive, "--pattern", "REGEX", "regular expression for names of topics")
    add_option(archive, "--batch", "N", "messages per micro-batch (default: all)", kind=positive)
    add_connection(archive)
    archive.set_defaults(run=run_archive)

    audit = jobs.add_parser("audit", help="find lost, duplicated and reordered messages in traces")
    audit.add_argument(
        "traces", metavar="FILE", nargs="+", help="trace written by `oncecast load --trace`"
    )
    audit.set_defaults(run=run_audit)

    metrics = jobs.add_parser(
        "metrics", help="compute throughput, latency, lag and load from traces"
    )
    metrics.add_argument(
        "traces", metavar="FILE", nargs="+", help="trace written by `oncecast load --trace`"
    )
    add_option(metrics, "--out", "DIR", "directory for a report with figures (default: no report)")
    metrics.set_defaults(run=run_metrics)

    experiments = jobs.add_parser(
        "experiments", help="write tables and figures from existing traces"
    )
    experiments.add_argument(
        "out", metavar="DIR", help="directory written by `oncecast experiment run`"
    )
    experiments.set_defaults(run=run_experiments)

    for job in (archive, audit, metrics, experiments):
        add_master(job)
        add_json(job)


def add_master(parser: argparse.ArgumentParser) -> None:
    add_option(parser, "--master", None, "Spark master URL", "local[*]")


def run_archive(arguments: argparse.Namespace) -> int:
    if (arguments.topics is None) == (arguments.pattern is None):
        return complain(
            "topics are not specified; use either --topics or --pattern", ExitStatus.USAGE
        )
    if missing := needs_spark():
        return complain(missing)
    from oncecast.spark.jobs import archive

    try:
        source = options_of(arguments)
    except OncecastError as error:
        return report_error(error)
    directory = Path(arguments.directory)
    checkpoint = str(directory / "_checkpoint")  # Spark ignores names that start with _

    def job(spark: SparkSession) -> int:
        count = archive(spark, source, str(directory), checkpoint)
        show(arguments, {"archived": count}, f"archived {counted(count, 'message')} in {directory}")
        return ExitStatus.OK

    return on_spark(arguments, job)


def options_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of the Spark source."""
    certificate, key, ca = arguments.tls or (None, None, arguments.tls_ca)
    login = login_of(arguments)
    options = {
        "address": arguments.server or os.environ.get("ONCECAST_SERVER") or SERVER,
        "cluster": arguments.cluster,
        "tlsCert": certificate,
        "tlsKey": key,
        "tlsCa": ca,
        "topics": arguments.topics,
        "topicPattern": arguments.pattern,
        "maxOffsetsPerTrigger": arguments.batch,
        "user": login.user,
        "password": login.password,
        "token": login.token,
    }
    return {name: str(value) for name, value in options.items() if value is not None}


def run_metrics(arguments: argparse.Namespace) -> int:
    if missing := lacking(arguments.traces):
        return complain(missing, ExitStatus.NOT_FOUND)
    if missing := needs_spark():
        return complain(missing)
    from oncecast.cli.spark.experiment import in_words, made
    from oncecast.spark.experiments import report
    from oncecast.spark.metrics import metrics

    def job(spark: SparkSession) -> int:
        finding = metrics(spark, arguments.traces)
        show(arguments, report.fields(finding), in_words(finding))
        if arguments.out is not None:
            about = made(
                spark, arguments, "Metrics", "Throughput and latency, from the traces of clients."
            )
            print(f"report: {report.write(Path(arguments.out), about, [finding])}", file=sys.stderr)
        return ExitStatus.OK

    return on_spark(arguments, job, light=small(arguments.traces))


def run_experiments(arguments: argparse.Namespace) -> int:
    if missing := needs_spark():
        return complain(missing)
    from oncecast.cli.spark.experiment import find
    from oncecast.spark.experiments.running import kept

    directory = Path(arguments.out)
    chosen = kept(directory)
    if not chosen:
        fact = f"{directory}: has no traces"
        return complain(f"{fact}; create them with `oncecast experiment run`", ExitStatus.NOT_FOUND)
    return on_spark(arguments, lambda spark: find(spark, arguments, directory, chosen), light=True)


def lacking(traces: list[str]) -> str:
    """Return an error text if a local file does not exist. Only Spark can check remote files."""
    for name in traces:
        if "://" not in name and not Path(name).exists():
            return f"{name}: file not found; create a trace with `oncecast load --trace`"
    return ""


def small(traces: list[str]) -> bool:
    """Return whether the traces are so small that an optimising JVM does not pay off."""
    files = [Path(name) for name in traces]
    if not all(each.is_file() for each in files):
        return False
    return sum(each.stat().st_size for each in files) < SMALL_BYTES


def needs_spark() -> str:
    """Return an error text if a package is not installed."""
    for name in ("pyspark", "pyarrow", "matplotlib"):
        if find_spec(name) is None:
            return f'{name} is not installed; run pip install "oncecast[spark]"'
    return ""


def run_audit(arguments: argparse.Namespace) -> int:
    if missing := lacking(arguments.traces):
        return complain(missing, ExitStatus.NOT_FOUND)
    if missing := needs_spark():
        return complain(missing)
    from oncecast.spark.jobs import SHOWN, audit_traces

    def job(spark: SparkSession) -> int:
        counts, faults = audit_traces(spark, arguments.traces)
        found = {name: counts.get(name, 0) for name in FAULTS}
        named = [each.asDict() for each in faults]
        lines = [", ".join(f"{count} {name}" for name, count in found.items())]
        lines += [in_words(each) for each in named]
        left = sum(counts.values()) - len(named)
        lines += [f"... and {left} more; the first {SHOWN} are shown"] if left else []
        fields = {name.replace(" ", "_"): count for name, count in found.items()}
        show(arguments, {**fields, "faults": named}, "\n".join(lines))
        return ExitStatus.FAILURE if counts else ExitStatus.OK

    return on_spark(arguments, job, light=small(arguments.traces))


def in_words(fault: dict[str, Any]) -> str:
    where = f"topic {fault['topic']} offset {fault['offset']}"
    message = f"producer {fault['producer']} sequence {fault['sequence']}"
    reader = f" subscription {fault['subscription']}" if fault["subscription"] else ""
    line = f" line {fault['line']}" if fault["line"] is not None else ""
    return f"{fault['fault']}: {where}{reader}, {message}{line}"


def on_spark(
    arguments: argparse.Namespace, job: Callable[[SparkSession], int], *, light: bool = False
) -> int:
    """Run a job on Spark. A `light` job gives Spark little to do, so a small JVM is enough."""
    from oncecast.errors import NoSpark
    from oncecast.spark.session import spark

    print("oncecast: starting Spark", file=sys.stderr, flush=True)
    try:
        light = light and arguments.master.startswith("local[")
        session = spark(arguments.master, light=light, **QUIET)
    except NoSpark as error:
        return complain(error)
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        return job(session)
    except (PySparkException, Py4JError) as error:
        return complain(last_line(str(error)))
    finally:
        session.stop()


def last_line(text: str) -> str:
    """Return the error at the end of a Python traceback, or the cause of a Java exception."""
    every = text.splitlines()
    ours = [line for line in every if line.startswith("oncecast.")]
    causes = [line for line in every if line.startswith("Caused by: ")]
    return (ours or causes)[-1].partition(": ")[2] if ours or causes else every[0]
