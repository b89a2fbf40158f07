"""Run a streaming query with a shuffle from topic to topic.

    python -m bench.spark.torture.driver NAME ADDRESS CHECKPOINT MASTER [--once] [--events DIR]

It reads topic `NAME.in` and writes `NAME.out`. With --once, it ends when all messages are read.
The exit status is 3 if the query fails. The last line then starts with "ended: ".
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.errors import StreamingQueryException

from oncecast.spark.session import spark

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ROWS = "100"  # number of rows per micro-batch
TASKS = 3
STALL = 1.5  # additional seconds for a slow task, so that Spark starts a second attempt
ENDED = "ended: "
FAILED = 3
SETTINGS = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "1g",
    "spark.cores.max": "2",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.3",
}


def query(session: SparkSession, name: str, address: str, checkpoint: str) -> DataStreamWriter:
    topic = session.readStream.format("oncecast").options(address=address, topics=f"{name}.in")
    topic = topic.options(maxOffsetsPerTrigger=ROWS, minPartitions="2", subscription="query")
    results = topic.load().selectExpr("key", "concat('seen ', string(value)) as value")
    slow = results.repartition(TASKS, "key").mapInArrow(stall, "key binary, value string")
    sink = slow.writeStream.format("oncecast")
    return sink.options(address=address, topic=f"{name}.out", checkpointLocation=checkpoint)


def stall(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Delay the first attempt of one task in every fourth micro-batch."""
    task = TaskContext.get()
    assert task is not None
    number = int(task.getLocalProperty("streaming.sql.batchId") or 0)
    rows = list(batches)
    if (task.attemptNumber(), task.partitionId(), number % 4) == (0, 0, 1):
        time.sleep(STALL)
    yield from rows


def events(directory: str) -> dict[str, str]:
    """Return settings that record all tasks, including speculative ones."""
    on = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
    return on | {"spark.eventLog.rolling.enabled": "false", "spark.eventLog.dir": directory}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name in ("name", "address", "checkpoint", "master"):
        parser.add_argument(name)
    parser.add_argument("--once", action="store_true", help="exit once all messages are read")
    parser.add_argument("--events", help="directory for Spark's event logs")
    given = parser.parse_args()
    settings = SETTINGS | (events(given.events) if given.events else {})
    session = spark(given.master, light=True, **settings)
    java = session.sparkContext._jvm
    assert java is not None
    print(f"java.home={java.System.getProperty('java.home')}", flush=True)
    writer = query(session, given.name, given.address, given.checkpoint)
    try:
        (writer.trigger(availableNow=True) if given.once else writer).start().awaitTermination()
    except StreamingQueryException as error:
        print(f"{ENDED}{' '.join(str(error).split())}", flush=True)
        return FAILED
    session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
