"""Register topics as temporary views, for SQL queries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from oncecast.spark.options import ADDRESS, Node, parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession


def register_topics(
    spark: SparkSession | ConnectSession, pattern: str = ".*", **options: str
) -> list[str]:
    """Create or replace a temporary view for each topic whose name matches. Return the names.

    A view is named after its topic. Write the name in backticks if it contains dots or dashes.
    `options` are source options other than `topics`. Call the function again to add topics that are
    created later.
    """
    wanted = re.compile(pattern)
    known = {option.name.lower() for option in ADDRESS}
    node = {name.lower(): value for name, value in options.items() if name.lower() in known}
    with Node.of(parse(ADDRESS, node)).connect() as client:
        found = [view.name for view in client.topics() if wanted.fullmatch(view.name)]
    for topic in found:
        frame = spark.read.format("oncecast").options(**options, topic=topic).load()
        frame.createOrReplaceTempView(f"`{topic.replace('`', '``')}`")
    return found
