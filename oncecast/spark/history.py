"""Read a topic's whole history as one frame: archived messages, then those still in the topic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oncecast.spark.archive.reading import archived

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.connect.dataframe import DataFrame as ConnectFrame
    from pyspark.sql.connect.session import SparkSession as ConnectSession


def read_history(
    spark: SparkSession | ConnectSession,
    directory: str | Path,
    *,
    streaming: bool = False,
    **options: str,
) -> DataFrame | ConnectFrame:
    """Return a frame with each message once, from the first archived one to the end of the topic.

    `options` are source options. By default, the frame contains all topics in the archive.
    """
    where = Path(directory).resolve()
    if not {"topic", "topics", "topicpattern"} & {name.lower() for name in options}:
        options["topics"] = ",".join(archived(where))
    reader = spark.readStream if streaming else spark.read
    return reader.format("oncecast").options(archive=str(where), **options).load()
