"""Transformations for pipelines: functions from DataFrame to DataFrame."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A line of a trace of `oncecast load --trace`; `line` numbers them.
TRACE = (
    "line long, time double, kind string, client string, topic string, subscription string, "
    "producer string, sequence long, offset long, redelivered boolean"
)
READER = ("topic", "subscription")
FAULT = ("fault", "topic", "subscription", "offset", "producer", "sequence", "line")
NO_LINE = "cast(null as long) as line"


# -- archive --


def dated(messages: DataFrame) -> DataFrame:
    """Add the day on which each message was put, for the layout of the files."""
    return messages.withColumn("date", f.to_date("timestamp"))


# -- audit: each message is delivered once and in order --


def audit(trace: DataFrame) -> DataFrame:
    """Return a row for each message that is lost, duplicated or out of order."""
    found = (lost(trace), misdelivered(trace), misstored(trace))
    return reduce(lambda one, other: one.unionByName(other), found)


def lost(trace: DataFrame) -> DataFrame:
    """Return messages that a subscription never received, although it did not give them up."""
    begins = f.min(f.when(f.col("kind") == "subscribe", f.col("offset"))).alias("begin")
    readers = trace.where("subscription is not null").groupBy(*READER).agg(begins)
    stored = trace.where("kind = 'stored'").select("topic", "offset", "producer", "sequence")
    owed = stored.join(f.broadcast(readers), "topic").where("offset >= begin")
    got = trace.where("kind = 'delivery'").select(*READER, "offset")
    missing = owed.join(got, [*READER, "offset"], "left_anti")
    skipped = f.broadcast(unsubscribed(trace))
    within = f.expr("offset >= skipped_from and offset < skipped_to")
    same = [missing[name] == skipped[name] for name in READER]
    missing = missing.join(skipped, [*same, within], "left_anti")
    return missing.select(f.lit("lost").alias("fault"), *FAULT[1:-1], f.expr(NO_LINE))


def unsubscribed(trace: DataFrame) -> DataFrame:
    """Return the offsets given up by unsubscribing: from the last delivery to the next start."""
    begun = trace.where("kind = 'subscribe'").groupBy(*READER).count().where("count > 1")
    resubscribed = trace.join(f.broadcast(begun.select(*READER)), [*READER], "left_semi")
    again = in_turn(resubscribed).where("kind = 'subscribe' and earlier > 0")
    begin = f.coalesce(f.col("highest") + 1, f.lit(0)).alias("skipped_from")
    return again.select(*READER, begin, f.col("offset").alias("skipped_to"))


def in_turn(trace: DataFrame) -> DataFrame:
    """Return the events of each reader with the state before each event.

    The state is the highest delivered offset, the number of subscribes, and the last request to go
    back.
    """
    before = Window.partitionBy(*READER).orderBy("line").rowsBetween(Window.unboundedPreceding, -1)
    highest = f.max(f.when(f.col("kind") == "delivery", f.col("offset")))
    earlier = f.count(f.when(f.col("kind") == "subscribe", 1))
    back = f.when(f.col("kind").isin("nack", "leave"), f.struct("line", "offset"))
    return trace.where("kind in ('subscribe', 'delivery', 'nack', 'leave')").select(
        *READER,
        "kind",
        "line",
        "offset",
        "producer",
        "sequence",
        "redelivered",
        highest.over(before).alias("highest"),
        earlier.over(before).alias("earlier"),
        f.last(back, ignorenulls=True).over(before).alias("back"),
    )


def misdelivered(trace: DataFrame) -> DataFrame:
    """Return deliveries that are out of order, and repeated ones that were not requested."""
    same = Window.partitionBy(*READER, "offset").orderBy("line")
    came = in_turn(trace).where("kind = 'delivery'").withColumn("before", f.lag("line").over(same))
    asked = f.expr("coalesce(back.line > before and back.offset <= offset and redelivered, false)")
    fault = (
        f.when(f.col("before").isNull(), f.expr("if(offset < highest, 'out of order', null)"))
        .when(~asked, "duplicated")
        .alias("fault")
    )
    return came.select(fault, *FAULT[1:]).where("fault is not null")


def misstored(trace: DataFrame) -> DataFrame:
    """Return messages of a producer at two offsets of a topic, or after a later one."""
    writer = ("topic", "producer")
    stored = trace.where("kind in ('stored', 'delivery')").select(*writer, "sequence", "offset")
    stored = stored.repartition(*writer).distinct()
    same = Window.partitionBy(*writer, "sequence").orderBy("offset")
    before = Window.partitionBy(*writer).orderBy("offset")
    before = before.rowsBetween(Window.unboundedPreceding, -1)
    found = stored.withColumns(
        {
            "before": f.lag("offset").over(same),
            "highest": f.max("sequence").over(before),
        }
    )
    fault = (
        f.when(f.col("before").isNotNull(), "stored twice")
        .when(f.col("sequence") < f.col("highest"), "stored out of order")
        .alias("fault")
    )
    no_subscription = f.lit(None).cast("string").alias("subscription")
    faults = found.select(
        fault, "topic", no_subscription, "offset", "producer", "sequence", f.expr(NO_LINE)
    )
    return faults.where("fault is not null")
