"""An example pipeline: raise an alarm, exactly once, for each reading that is too hot.

    python pipelines/alarms.py 127.0.0.1:7400

Topic `readings` holds JSON such as {"sensor": "boiler", "celsius": 93.5}. You can kill and restart
the pipeline at any time. It resumes where it stopped, and does not raise an alarm twice.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from oncecast.spark.session import spark

READING = "sensor string, celsius double"
HOT = 80.0


def alarms(readings: DataFrame) -> DataFrame:
    reading = f.from_json(f.col("value").cast("string"), READING)
    hot = readings.select(reading.alias("reading")).where(f.col("reading.celsius") > HOT)
    value = f.format_string("%.1f °C", "reading.celsius").alias("value")
    return hot.select(f.col("reading.sensor").alias("key"), value)


def run(session: SparkSession, node: str, checkpoint: str) -> None:
    """Process all new readings, then stop. Without the trigger, the query would run forever."""
    source = session.readStream.format("oncecast").options(address=node, topics="readings")
    sink = alarms(source.load()).writeStream.format("oncecast")
    sink = sink.options(address=node, topic="alarms", checkpointLocation=checkpoint)
    sink.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    run(spark(), sys.argv[1], "alarms.checkpoint")
