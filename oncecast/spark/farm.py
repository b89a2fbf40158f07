"""Run pure Python work as Spark tasks, with the results as a DataFrame.

The work must depend on its arguments only, as simulations do. Results are Arrow batches. If Spark
repeats a task, it gets the same result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

NAME = "oncecast-farm"
LOOK_EVERY = 0.2  # seconds

Piece = TypeVar("Piece")


def farmed(
    spark: SparkSession,
    pieces: Sequence[Piece],
    work: Callable[[Piece], Iterable[pa.RecordBatch]],
    schema: str,
) -> DataFrame:
    """Return the rows of all pieces, one task each. The work starts when the rows are read."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    kept = list(pieces)

    # Defined here so that Spark sends them to the workers together with the pieces.
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


@contextmanager
def watched(spark: SparkSession, step: Callable[[int], None]) -> Iterator[None]:
    """Call `step` with the number of newly completed tasks while Spark works."""
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
