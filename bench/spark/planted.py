"""A correct trace of any length, with one planted loss, duplicate and swap."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPICS, SUBSCRIPTIONS, PRODUCERS = 3, 2, 4
READERS = TOPICS * SUBSCRIPTIONS
# The faults that the audit must report: fault, topic, subscription, offset.
FAULTS = {
    ("lost", "topic0", "sub0", 100),
    ("duplicated", "topic1", "sub1", 200),
    ("out of order", "topic2", "sub0", 300),
}


def planted(spark: SparkSession, deliveries: int) -> DataFrame:
    """Return a trace with this many deliveries and half as many stored messages."""
    each = deliveries // READERS
    stored = spark.range(TOPICS * each).selectExpr(
        "id as line",
        "'stored' as kind",
        f"concat('topic', id % {TOPICS}) as topic",
        "string(null) as subscription",
        f"id div {TOPICS} as offset",
    )
    begun = spark.range(READERS).selectExpr(
        "-1 - id as line", "'subscribe' as kind", *reader("id"), "0L as offset"
    )
    came = spark.range(READERS * each).selectExpr(
        f"{TOPICS * each} + 2 * id as line",
        "'delivery' as kind",
        *reader("id"),
        f"id div {READERS} as offset",
    )
    lost, again, swapped = (fault[1:] for fault in sorted(FAULTS, key=lambda fault: fault[3]))
    came = came.where(f"not ({is_(lost)})")
    twice = came.where(is_(again)).selectExpr("line + 1 as line", *came.columns[1:])
    later = f"line + if({is_(swapped)}, {2 * READERS + 1}, 0) as line"  # behind the next one
    came = came.selectExpr(later, *came.columns[1:])
    lines = stored.union(begun).union(came).union(twice)
    of_message = "kind in ('stored', 'delivery')"
    return lines.selectExpr(
        "line",
        "line / 1e6 as time",
        "kind",
        "'client' as client",
        "topic",
        "subscription",
        f"if({of_message}, concat('p', offset % {PRODUCERS}), null) as producer",
        f"if({of_message}, offset div {PRODUCERS}, null) as sequence",
        "offset",
        "if(kind = 'delivery', false, null) as redelivered",
    )


def reader(number: str) -> tuple[str, str]:
    topic = f"concat('topic', {number} % {TOPICS}) as topic"
    return topic, f"concat('sub', {number} div {TOPICS} % {SUBSCRIPTIONS}) as subscription"


def is_(delivery: tuple[str, str, int]) -> str:
    topic, subscription, offset = delivery
    return f"topic = '{topic}' and subscription = '{subscription}' and offset = {offset}"
