"""What pipelines are made of: functions from DataFrame to DataFrame."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A line of a trace, as `oncecast load --trace` writes it; `line` counts them.
TRACE = (
    "line long, time double, kind string, client string, topic string, subscription string, "
    "producer string, sequence long, offset long, redelivered boolean"
)
READER = ("topic", "subscription")
FAULT = ("fault", "topic", "subscription", "offset", "producer", "sequence", "line")


# -- archive --


def dated(messages: DataFrame) -> DataFrame:
    """With the day on which each message was put, to lay files out by."""
    return messages.withColumn("date", f.to_date("timestamp"))


# -- audit: was each message delivered once, and in order? --


def audit(trace: DataFrame) -> DataFrame:
    """One row for each message that was lost, delivered twice without need, or out of order."""
    found = (lost, delivered_again, delivered_out_of_order, stored_again, stored_out_of_order)
    return reduce(lambda one, other: one.unionByName(other), (each(trace) for each in found))


def lost(trace: DataFrame) -> DataFrame:
    """What was stored after a subscription began and never came, unless that was forgone."""
    begins = f.min(f.when(f.col("kind") == "subscribe", f.col("offset"))).alias("begin")
    readers = trace.where("subscription is not null").groupBy(*READER).agg(begins)
    stored = trace.where("kind = 'stored'").select("topic", "offset", "producer", "sequence")
    owed = stored.join(f.broadcast(readers), "topic").where("offset >= begin")
    got = trace.where("kind = 'delivery'").select(*READER, "offset").distinct()
    missing = owed.join(got, [*READER, "offset"], "left_anti")
    given_up = f.broadcast(forgone(trace))
    within = f.expr("offset >= forgone_from and offset < forgone_to")
    same = [missing[name] == given_up[name] for name in READER]
    missing = missing.join(given_up, [*same, within], "left_anti")
    return fault("lost", missing.withColumn("line", f.lit(None).cast("long")))


def forgone(trace: DataFrame) -> DataFrame:
    """By unsubscribing: what lies between the newest that came and the next subscription."""
    before = Window.partitionBy(*READER).orderBy("line").rowsBetween(Window.unboundedPreceding, -1)
    came = f.max(f.when(f.col("kind") == "delivery", f.col("offset"))).over(before)
    earlier = f.count(f.when(f.col("kind") == "subscribe", 1)).over(before)
    seen = trace.where("kind in ('subscribe', 'delivery')").select(
        *READER, "kind", "offset", came.alias("came"), earlier.alias("earlier")
    )
    again = seen.where("kind = 'subscribe' and earlier > 0")
    begin = f.coalesce(f.col("came") + 1, f.lit(0)).alias("forgone_from")
    return again.select(*READER, begin, f.col("offset").alias("forgone_to"))


def delivered_again(trace: DataFrame) -> DataFrame:
    """An offset that came before, and nobody had asked for it once more, or it is not marked."""
    events = trace.where("kind in ('delivery', 'nack', 'leave')")
    before = Window.partitionBy(*READER).orderBy("line").rowsBetween(Window.unboundedPreceding, -1)
    back = f.when(f.col("kind") != "delivery", f.struct("line", "offset"))
    events = events.withColumn("back", f.last(back, ignorenulls=True).over(before))
    same = Window.partitionBy(*READER, "offset").orderBy("line")
    came = events.where("kind = 'delivery'").withColumn("before", f.lag("line").over(same))
    asked = f.expr("back.line > before and back.offset <= offset and redelivered")
    again = came.where(f.col("before").isNotNull() & ~f.coalesce(asked, f.lit(False)))
    return fault("duplicated", again)


def delivered_out_of_order(trace: DataFrame) -> DataFrame:
    """First deliveries come with rising offsets; what comes behind a higher one does not."""
    came = trace.where("kind = 'delivery'")
    same = Window.partitionBy(*READER, "offset").orderBy("line")
    firsts = came.withColumn("turn", f.row_number().over(same)).where("turn = 1")
    before = Window.partitionBy(*READER).orderBy("line").rowsBetween(Window.unboundedPreceding, -1)
    late = firsts.withColumn("highest", f.max("offset").over(before)).where("offset < highest")
    return fault("out of order", late)


def stored_again(trace: DataFrame) -> DataFrame:
    """The same message of a producer at two offsets of a topic."""
    places = trace.where("kind in ('stored', 'delivery')").select(
        "topic", "producer", "sequence", "offset"
    )
    same = Window.partitionBy("topic", "producer", "sequence").orderBy("offset")
    again = places.distinct().withColumn("before", f.lag("offset").over(same))
    return fault("stored twice", nameless(again.where("before is not null")))


def stored_out_of_order(trace: DataFrame) -> DataFrame:
    """A producer's message behind a later one of the same producer."""
    stored = trace.where("kind = 'stored'").select("topic", "producer", "sequence", "offset")
    before = Window.partitionBy("topic", "producer").orderBy("offset")
    before = before.rowsBetween(Window.unboundedPreceding, -1)
    late = stored.distinct().withColumn("highest", f.max("sequence").over(before))
    return fault("stored out of order", nameless(late.where("sequence < highest")))


def nameless(rows: DataFrame) -> DataFrame:
    none = f.lit(None)
    return rows.withColumns({"subscription": none.cast("string"), "line": none.cast("long")})


def fault(kind: str, rows: DataFrame) -> DataFrame:
    return rows.withColumn("fault", f.lit(kind)).select(*FAULT)
