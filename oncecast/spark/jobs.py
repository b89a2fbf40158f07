"""Pipelines that ship: each reads, applies transformations, and writes (PIPE-4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark import StorageLevel

from oncecast.spark.transformations import FAULT, TRACE, audit, dated

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_EVERY = 1  # second
SHOWN = 20  # faults that are named; all are counted


def archive(spark: SparkSession, source: Mapping[str, str], directory: str, checkpoint: str) -> int:
    """All that the topics hold and that is not yet there goes to Parquet, by topic and day, once.

    Returns how many messages that were.
    """
    topics = spark.readStream.format("oncecast").options(**source, includeHeaders="true").load()
    files = dated(topics).writeStream.format("parquet").option("path", directory)
    query = files.partitionBy("topic", "date").option("checkpointLocation", checkpoint)
    return read_by(query.trigger(availableNow=True).start())


def read_by(query: StreamingQuery) -> int:
    """How many messages, when it has ended. Spark remembers only its last hundred micro-batches."""
    rows: dict[int, int] = {}
    ended: bool | None = False
    while not ended:
        ended = query.awaitTermination(LOOK_EVERY)
        rows |= {each["batchId"]: each["numInputRows"] for each in query.recentProgress}
    return sum(rows.values())


def audit_traces(spark: SparkSession, paths: list[str]) -> tuple[dict[str, int], list[Row]]:
    """How many faults of each kind the traces show, and the first of them."""
    trace = spark.read.schema(TRACE).option("mode", "FAILFAST").json(paths)
    trace = trace.persist(StorageLevel.DISK_ONLY)  # JSON takes longer to read than all the rest
    faults = audit(trace).cache()
    counts = {row.fault: row["count"] for row in faults.groupBy("fault").count().collect()}
    shown = faults.orderBy(*FAULT).limit(SHOWN).collect() if counts else []
    faults.unpersist()
    trace.unpersist()
    return counts, shown
