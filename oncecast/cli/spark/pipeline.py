"""`oncecast pipeline run`: run Spark jobs, on this machine or on a cluster."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Collection, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from oncecast.cli.connecting import (
    SERVER,
    add_connection,
    add_flag,
    add_json,
    add_option,
    complain,
    counted,
    positive,
    report_error,
    show,
    start,
)
from oncecast.cli.contexts import apply_context
from oncecast.cli.login import login_of
from oncecast.errors import BadArchive, ExitStatus, OncecastError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncecast.client import blocking
    from oncecast.spark.archive.values import Execute
    from oncecast.spark.audit.job import Report

QUIET = {"spark.ui.showConsoleProgress": "false"}  # the command draws its own progress bars
SMALL_BYTES = 64 << 20
FROM = (
    "position from which to add messages that the archive lacks: earliest, an offset or an "
    "ISO 8601 time (default: the end of the archive)"
)
FORMAT = "format of a new archive (default: parquet)"


# Long because it is one table of commands and their options.
def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    pipeline = commands.add_parser("pipeline", help="run Spark jobs", description=__doc__)
    verbs = pipeline.add_subparsers(title="commands", metavar="COMMAND", required=True)
    run = verbs.add_parser("run", help="run a job")
    jobs = run.add_subparsers(title="jobs", metavar="JOB", required=True)

    archive = jobs.add_parser(
        "archive", help="write topics to a table, with each message exactly once"
    )
    archive.add_argument("directory", metavar="DIR", help="directory of the table")
    archive.add_argument("--topics", metavar="T,...", help="topic names, separated by commas")
    add_option(archive, "--pattern", "REGEX", "regular expression for topic names")
    add_option(
        archive,
        "--batch",
        "N",
        "maximum number of messages per commit (default: no limit)",
        kind=positive,
    )
    add_option(archive, "--from", "START", FROM, kind=start)
    archive.add_argument("--format", choices=("parquet", "delta", "iceberg"), help=FORMAT)
    add_flag(archive, "--compact", "merge each day's small files into larger ones")
    add_flag(archive, "--no-spark", "write the files in this process, without Spark and Java")
    add_connection(archive)
    archive.set_defaults(run=run_archive)

    audit = jobs.add_parser("audit", help="check traces for lost messages and other faults")
    audit.add_argument(
        "traces", metavar="FILE", nargs="+", help="trace written by `oncecast load --trace`"
    )
    add_flag(audit, "--killed", "accept an incomplete trace whose writer was killed")
    add_option(audit, "--examples", "N", "number of faults of each kind to list", 5, positive)
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
        return complain("no topics specified; use either --topics or --pattern", ExitStatus.USAGE)
    if missing := needs_arrow() if arguments.no_spark else needs_spark(figures=False):
        return complain(missing)
    from oncecast.spark.archive.job import here
    from oncecast.spark.archive.job import on_spark as by_spark

    if not arguments.no_spark:
        return on_spark(arguments, lambda spark: archive_with(arguments, by_spark(spark)))
    try:
        return archive_with(arguments, here)
    except OncecastError as error:
        return report_error(error)


def archive_with(arguments: argparse.Namespace, execute: Execute) -> int:
    from oncecast.spark.archive.job import archive
    from oncecast.spark.archive.opening import open_table
    from oncecast.spark.source_options import SourceOptions
    from oncecast.spark.topics import Topics, Views

    if "://" in arguments.directory:
        fact = f"{arguments.directory} is the address of an object store"
        raise BadArchive(fact, "use a directory on a local file system")
    directory = Path(arguments.directory)
    options = SourceOptions.of(options_of(arguments), streaming=False)
    table = open_table(directory, arguments.format)

    def select(client: blocking.Client, archived: Collection[str]) -> Views:
        topics = Topics(client, options)
        views = topics.views()
        topics.check_all_exist(views)
        topics.check_kept({name: view for name, view in views.items() if name not in archived})
        return views

    count = archive(
        options.node,
        select,
        table,
        execute,
        start=vars(arguments)["from"],
        rows_max=arguments.batch,
    )
    fields, text = {"archived": count}, f"archived {counted(count, 'message')} in {directory}"
    if arguments.compact:
        fields["compacted"] = table.compact(execute)
        text += f"; compacted {counted(fields['compacted'], 'file')}"
    show(arguments, fields, text)
    return ExitStatus.OK


def options_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options for the Spark source."""
    apply_context(arguments)
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
        fact = f"{directory}: no traces found"
        return complain(f"{fact}; create them with `oncecast experiment run`", ExitStatus.NOT_FOUND)
    return on_spark(arguments, lambda spark: find(spark, arguments, directory, chosen), light=True)


def lacking(traces: list[str]) -> str:
    """Return an error message if a local file does not exist. Only Spark can check remote files."""
    for name in traces:
        if "://" not in name and not Path(name).exists():
            return f"{name}: file not found; create a trace with `oncecast load --trace`"
    return ""


def small(traces: list[str]) -> bool:
    """Return whether the traces are too small to justify the startup time of an optimizing JVM."""
    files = [Path(name) for name in traces]
    if not all(each.is_file() for each in files):
        return False
    return sum(each.stat().st_size for each in files) < SMALL_BYTES


def needs_arrow() -> str:
    if find_spec("pyarrow") is None:
        return 'pyarrow is not installed; run pip install "oncecast[arrow]"'
    return ""


def needs_spark(*, figures: bool = True) -> str:
    """Return an error message if a package that Spark jobs need is missing, otherwise ""."""
    for name in ("pyspark", "pyarrow", *(["matplotlib"] if figures else [])):
        if find_spec(name) is None:
            return f'{name} is not installed; run pip install "oncecast[spark]"'
    return ""


def run_audit(arguments: argparse.Namespace) -> int:
    if missing := lacking(arguments.traces):
        return complain(missing, ExitStatus.NOT_FOUND)
    if missing := needs_spark():
        return complain(missing)
    from oncecast.spark.audit.job import audit_traces

    def job(spark: SparkSession) -> int:
        options = {"killed": arguments.killed, "examples": arguments.examples}
        report = audit_traces(spark, arguments.traces, **options)
        if not report.files:
            return complain("no traces found in the directories", ExitStatus.NOT_FOUND)
        show(arguments, report.fields(), "\n".join(in_words(report)))
        return ExitStatus.FAILURE if report.counts else ExitStatus.OK

    return on_spark(arguments, job, light=small(arguments.traces))


def in_words(report: Report) -> Iterator[str]:
    """Yield the report as lines: each kind of fault with its count, meaning and first examples."""
    from oncecast.spark.audit.faults import MEANING

    number = counted(sum(report.counts.values()), "fault") if report.counts else "no faults"
    yield f"{number} in {counted(report.lines, 'line')} of {counted(report.files, 'file')}"
    for name, count in report.counts.items():
        yield f"{count} {name}: {MEANING[name]}"
        yield from (f"  {each}" for each in report.faults if each.fault == name)
    for run in report.unchecked:
        yield f"run {run} was not checked further because its files are incomplete"


def on_spark(
    arguments: argparse.Namespace, job: Callable[[SparkSession], int], *, light: bool = False
) -> int:
    """Run a job on Spark and return its exit status.

    A `light` job gives Spark little to do, so a small JVM suffices.
    """
    from oncecast.errors import NoSpark
    from oncecast.spark.session import spark

    print("oncecast: starting Spark", file=sys.stderr, flush=True)
    try:
        light = light and arguments.master.startswith("local[")
        # A Spark Connect client cannot change the server's settings.
        settings = {} if arguments.master.startswith("sc://") else QUIET
        session = spark(arguments.master, light=light, **settings)
    except NoSpark as error:
        return complain(error)
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        return job(session)
    except OncecastError as error:
        return report_error(error)
    except (PySparkException, Py4JError) as error:
        return complain(last_line(str(error)))
    finally:
        session.stop()


def last_line(text: str) -> str:
    """Return the last line of an oncecast traceback, or the cause of a Java exception."""
    every = text.splitlines()
    ours = [line for line in every if line.startswith("oncecast.")]
    causes = [line for line in every if line.startswith("Caused by: ")]
    return (ours or causes)[-1].partition(": ")[2] if ours or causes else every[0]
