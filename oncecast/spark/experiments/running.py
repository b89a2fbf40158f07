"""Run experiments as Spark tasks, write their traces to Parquet files, and compute findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as f

from oncecast.lab.experiments import live as exp_live
from oncecast.lab.experiments import paxos as exp_paxos
from oncecast.lab.experiments import ring as exp_ring
from oncecast.lab.experiments.catalogue import rows
from oncecast.lab.experiments.runs import Row, Run, Scale
from oncecast.spark.experiments.catalogue import EXPERIMENTS, LIVE
from oncecast.spark.experiments.finding import RUN, TRACE, Experiment, Finding
from oncecast.spark.farm import farmed, watched

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

TRACES = "traces"
ROWS_A_BATCH = 50_000
SECONDS_A_TASK = 8.0  # maximum estimated seconds of a task that has several runs


def simulate(
    spark: SparkSession, runs: Sequence[Run], directory: Path, step: Callable[[int], None]
) -> None:
    """Execute all runs, and write their traces by scenario. Replace earlier traces."""
    trace = farmed(spark, pieces(runs), batches, TRACE)
    files = trace.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    with watched(spark, step):
        files.partitionBy("scenario").parquet(str(directory / TRACES))


def pieces(runs: Iterable[Run]) -> list[list[Run]]:
    """Group the runs into tasks, longest first, so that all cores finish at the same time."""
    made: list[list[Run]] = []
    filled = SECONDS_A_TASK
    for run in sorted(dict.fromkeys(runs), key=seconds, reverse=True):
        if filled + seconds(run) > SECONDS_A_TASK:
            made.append([])
            filled = 0.0
        made[-1].append(run)
        filled += seconds(run)
    return made


def seconds(run: Run) -> float:
    """Return the estimated duration of a run in seconds."""
    match run.scenario:
        case exp_ring.OWNERSHIP:
            return 1e-5 * (run.nodes * run.positions + run.messages)
        case exp_live.SCENARIO:
            return 1.0  # the runs share this machine, so they all go in one task
        case exp_ring.REPAIR:
            return 0.01 * run.nodes
        case exp_paxos.STORM | exp_paxos.ELECTION:
            return 0.2 * run.nodes
        case _:
            busy = 1.0 if run.system == "scribe" else 2.0
            return 3e-5 * busy * run.nodes * (run.messages + 100)


def batches(runs: list[Run]) -> Iterator[pa.RecordBatch]:
    for run in runs:
        found = rows(run)
        for first in range(0, len(found), ROWS_A_BATCH):
            yield batch(run, first, found[first : first + ROWS_A_BATCH])


def batch(run: Run, first: int, found: list[Row]) -> pa.RecordBatch:
    import pyarrow as pa

    count = len(found)
    times, kinds, nodes, subjects, values = zip(*found, strict=True)
    setting = (
        (run.scenario, pa.string()),
        (run.system, pa.string()),
        (run.nodes, pa.int32()),
        (run.messages, pa.int32()),
        (run.positions, pa.int32()),
        (run.share, pa.float64()),
        (run.seed, pa.int32()),
    )
    columns = [pa.repeat(pa.scalar(value, kind), count) for value, kind in setting]
    columns += [
        pa.array(range(first, first + count), pa.int64()),
        pa.array(times, pa.float64()),
        pa.array(kinds, pa.string()),
        pa.array(nodes, pa.string()),
        pa.array(subjects, pa.string()),
        pa.array(values, pa.float64()),
    ]
    names = [column.split()[0] for column in TRACE.split(", ")]
    return pa.RecordBatch.from_arrays(columns, names)


def traces(spark: SparkSession, directory: Path) -> DataFrame:
    return spark.read.schema(TRACE).parquet(str(directory / TRACES))


def kept(directory: Path) -> list[Experiment]:
    """Return the experiments with traces of all their scenarios in the directory."""
    there = {each.name.partition("=")[2] for each in (directory / TRACES).glob("scenario=*")}
    known = (*EXPERIMENTS.values(), LIVE)
    return [each for each in known if there.issuperset(scenarios(each))]


def scenarios(experiment: Experiment) -> list[str]:
    return list(dict.fromkeys(run.scenario for run in experiment.runs(Scale())))


def found(
    spark: SparkSession, directory: Path, experiments: Iterable[Experiment]
) -> Iterator[Finding]:
    trace = traces(spark, directory)
    counts = {row.scenario: row for row in played(trace).collect()}
    for experiment in experiments:
        played_runs = [counts[scenario] for scenario in scenarios(experiment) if scenario in counts]
        summary = "; ".join(
            f"{each.scenario}: {each.runs} runs, seeds {each.first} to {each.last}"
            for each in played_runs
        )
        yield msgspec.structs.replace(experiment.find(trace), runs=f"{summary}.")


def played(trace: DataFrame) -> DataFrame:
    """Return the number of runs per scenario, and their seeds."""
    runs = trace.select("scenario", *RUN).distinct().groupBy("scenario")
    seeds = (f.min("seed").alias("first"), f.max("seed").alias("last"))
    return runs.agg(f.count("*").alias("runs"), *seeds).select("scenario", "runs", "first", "last")
