"""A streaming query from topic `in` to topic `out`, with a shuffle between; it never ends.

python -m tests.spark.driver ADDRESS CHECKPOINT MASTER
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from oncecast.spark.session import spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ROWS = "200"  # per micro-batch
STARTS = 5  # restarts of a query that fails without a node or in a timeout


def query(session: SparkSession, address: str, checkpoint: str) -> DataStreamWriter:
    topic = session.readStream.format("oncecast").options(address=address, topics="in")
    frame = topic.options(maxOffsetsPerTrigger=ROWS, minPartitions="2", subscription="query").load()
    results = frame.selectExpr("key", "concat('seen ', string(value)) as value")
    sink = results.repartition(2, "key").writeStream.format("oncecast")
    return sink.options(address=address, topic="out", checkpointLocation=checkpoint)


def main(address: str, checkpoint: str, master: str) -> None:
    session = spark(master, light=True)
    java = session.sparkContext._jvm
    assert java is not None
    print(f"java.home={java.System.getProperty('java.home')}", flush=True)
    for _ in range(STARTS):
        try:
            query(session, address, checkpoint).start().awaitTermination()
        except StreamingQueryException as error:
            print(f"the query failed and is restarted: {error}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
