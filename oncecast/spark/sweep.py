"""Run many seeds and sizes of a scenario as Spark tasks (PIPE-7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from pyspark.sql import functions as f

from oncecast.lab.scenarios.catalogue import SCENARIOS
from oncecast.lab.scenarios.scenario import Outcome, run
from oncecast.spark.farm import farmed, watched

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

OUTCOME = (
    "scenario string, nodes int, seed long, ok boolean, violation string, trace string, "
    "events long, virtual_seconds double, seconds double, figures string, replay string"
)
TASKS_MAX = 1000
SHOWN = 20  # maximum number of failing seeds that are listed; all of them are counted


class Piece(NamedTuple):
    scenario: str
    nodes: int | None
    seeds: range


def run_one(scenario: str, seed: int, nodes: int | None) -> Outcome:
    return run(SCENARIOS[scenario], seed, nodes)


def sweep(
    spark: SparkSession,
    pieces: Sequence[Piece],
    directory: str,
    step: Callable[[int], None] = lambda done: None,
    play: Callable[[str, int, int | None], Outcome] = run_one,
) -> DataFrame:
    """Run every seed of every piece once. Write the outcomes to Parquet, and return them."""

    def work(piece: Piece) -> Iterator[pa.RecordBatch]:
        yield batch([play(piece.scenario, seed, piece.nodes) for seed in piece.seeds])

    with watched(spark, step):
        outcomes = farmed(spark, pieces, work, OUTCOME)
        outcomes.write.mode("overwrite").parquet(directory)
    return spark.read.schema(OUTCOME).parquet(directory)


def divided(scenario: str, sizes: Sequence[int | None], seeds: range, cores: int) -> list[Piece]:
    """Return pieces that keep all cores busy to the end. Pieces with large sizes come first."""
    tasks = min(TASKS_MAX, len(seeds) * len(sizes), max(1, 8 * cores))
    each = -(-len(seeds) * len(sizes) // tasks)
    ordered = sorted(sizes, key=lambda nodes: -(nodes or 0))
    return [
        Piece(scenario, nodes, seeds[first : first + each])
        for nodes in ordered
        for first in range(0, len(seeds), each)
    ]


def batch(outcomes: list[Outcome]) -> pa.RecordBatch:
    import pyarrow as pa

    rows: list[dict[str, Any]] = []
    for outcome in outcomes:
        figures = msgspec.json.encode(outcome.figures).decode()
        row = msgspec.structs.asdict(outcome) | {"figures": figures, "replay": outcome.replay}
        rows.append(row)
    kinds = {
        "string": pa.string(),
        "int": pa.int32(),
        "long": pa.int64(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
    }
    fields = [column.split() for column in OUTCOME.split(", ")]
    schema = pa.schema([(name, kinds[kind]) for name, kind in fields])
    return pa.RecordBatch.from_pylist(rows, schema)


# -- DataFrame -> DataFrame --


def by_size(outcomes: DataFrame) -> DataFrame:
    failed = f.count(f.when(~f.col("ok"), 1)).alias("failed")
    sums = (f.sum("events").alias("events"), f.sum("seconds").alias("seconds"))
    sizes = outcomes.groupBy("scenario", "nodes").agg(f.count("*").alias("seeds"), failed, *sums)
    return sizes.select("scenario", "nodes", "seeds", "failed", "events", "seconds").orderBy(
        "nodes"
    )


def failures(outcomes: DataFrame) -> DataFrame:
    columns = ("nodes", "seed", "virtual_seconds", "violation", "replay")
    return outcomes.where("not ok").select(*columns).orderBy("nodes", "seed")
