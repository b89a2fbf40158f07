"""The jobs of `oncecast pipeline run`: each reads, transforms and writes (PIPE-4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark import StorageLevel

from oncecast.spark.transformations import FAULT, TRACE, audit, dated

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_EVERY = 1  # second
SHOWN = 20  # listed faults; all of them are counted


def archive(spark: SparkSession, source: Mapping[str, str], directory: str, checkpoint: str) -> int:
    """Write new messages of the topics to Parquet once, by topic and day; return their number."""
    topics = spark.readStream.format("oncecast").options(**source, includeHeaders="true").load()
    files = dated(topics).writeStream.format("parquet").option("path", directory)
    query = files.partitionBy("topic", "date").option("checkpointLocation", checkpoint)
    return read_by(query.trigger(availableNow=True).start())


def read_by(query: StreamingQuery) -> int:
    """Wait for the query and return its number of messages.

    Spark keeps only the last hundred micro-batches, so this function adds them up as the query
    runs.
    """
    rows: dict[int, int] = {}
    ended: bool | None = False
    while not ended:
        ended = query.awaitTermination(LOOK_EVERY)
        rows |= {each["batchId"]: each["numInputRows"] for each in query.recentProgress}
    return sum(rows.values())


def audit_traces(spark: SparkSession, paths: list[str]) -> tuple[dict[str, int], list[Row]]:
    """Return the number of faults of each kind in the traces, and the first faults."""
    trace = spark.read.schema(TRACE).option("mode", "FAILFAST").json(paths)
    trace = trace.persist(StorageLevel.DISK_ONLY)  # reading JSON takes longer than everything else
    faults = audit(trace).cache()
    counts = {row.fault: row["count"] for row in faults.groupBy("fault").count().collect()}
    shown = faults.orderBy(*FAULT).limit(SHOWN).collect() if counts else []
    faults.unpersist()
    trace.unpersist()
    return counts, shown
