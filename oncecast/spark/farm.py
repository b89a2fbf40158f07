"""Run pure Python work as Spark tasks, and return the results as a DataFrame.

The work must depend only on its arguments, as simulations do. Results are Arrow batches. A task
that Spark repeats returns the same result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.connect.shell.progress import StageInfo
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

NAME = "oncecast-farm"
LOOK_EVERY = 0.2  # seconds
RANGE = 1 << 20  # higher than the number of cores of any cluster

Piece = TypeVar("Piece")


def farmed(
    spark: SparkSession,
    pieces: Sequence[Piece],
    work: Callable[[Piece], Iterable[pa.RecordBatch]],
    schema: str,
) -> DataFrame:
    """Return the rows of all pieces, with one task per piece. Reading the frame starts the work."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    kept = list(pieces)

    # Define the classes here, so that Spark sends them to the workers with the pieces.
    class Reader(DataSourceReader):
        def partitions(self) -> Sequence[InputPartition]:
            return [InputPartition(number) for number in range(len(kept))]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            yield from work(kept[partition.value])

    class Farm(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            return schema

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(Farm)
    return spark.read.format(NAME).load()


def is_remote(spark: SparkSession) -> bool:
    """Return whether this is a Spark Connect session, which has no SparkContext."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def cores_of(spark: SparkSession) -> int:
    """Return how many tasks Spark can run at once."""
    if is_remote(spark):  # Spark splits a range into one partition per core
        numbers = spark.range(RANGE).selectExpr("spark_partition_id() as id")
        return numbers.distinct().count()
    return spark.sparkContext.defaultParallelism


@contextmanager
def watched(spark: SparkSession, step: Callable[[int], None]) -> Iterator[None]:
    """Call `step` with the number of newly completed tasks while Spark works."""
    with _watched_remotely(spark, step) if is_remote(spark) else _watched_here(spark, step):
        yield


@contextmanager
def _watched_remotely(spark: SparkSession, step: Callable[[int], None]) -> Iterator[None]:
    done: dict[int, int] = {}

    def look(stages: Iterable[StageInfo] | None, **_: object) -> None:
        for stage in stages or ():
            if stage.num_completed_tasks > done.get(stage.stage_id, 0):
                step(stage.num_completed_tasks - done.get(stage.stage_id, 0))
                done[stage.stage_id] = stage.num_completed_tasks

    handler: Any = look
    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)


@contextmanager
def _watched_here(spark: SparkSession, step: Callable[[int], None]) -> Iterator[None]:
    tracker, over = spark.sparkContext.statusTracker(), threading.Event()
    done: dict[int, int] = {}

    def look() -> None:
        while not over.wait(LOOK_EVERY):
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None and info.numCompletedTasks > done.get(stage, 0):
                    step(info.numCompletedTasks - done.get(stage, 0))
                    done[stage] = info.numCompletedTasks

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()
