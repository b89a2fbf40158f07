"""Compute cost and latency without failures, from the publishing traces."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from oncecast.lab.experiments import publish as exp_publish
from oncecast.lab.experiments.publish import SCENARIO, SIZES_PUBLISHES, SOURCE_NODES, SOURCE_SIZES
from oncecast.lab.experiments.systems import SUBSCRIBED, TOPICS
from oncecast.lab.papers.tables import Must
from oncecast.spark.experiments.finding import RUN, SETTING, Figures, collected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The purpose of each message type.
PARTS = {
    "copies": ("scribe.Copy", "plumtree.Gossip", "flood.Flooded"),
    "ways": ("scribe.Routed",),
    "trees": ("scribe.Adopted", "scribe.Orphaned", "scribe.Quit", "scribe.Pulse"),
    "announcements": ("plumtree.IHave", "plumtree.Graft", "plumtree.Prune"),
    "hops": ("chord.Hop",),
    "routing": ("chord.Hop", "chord.Hopped"),
    "ring": ("chord.Probe", "chord.Report", "chord.Notify"),
    "fingers": tuple(
        f"chord.{name}" for name in ("Locate", "Nearer", "Near", "Confirm", "Found", "Unsure")
    ),
}
LAYERS = {layer: f"{layer}.%" for layer in ("scribe", "chord", "plumtree", "flood", "hyparview")}
SETTING_TEXT = (
    f"{TOPICS} topics, each node subscribed to {SUBSCRIBED} of them; every node publishes five "
    "messages per second on any topic (with 100 nodes or more: 50 to 300 messages in total within "
    "five seconds); a hop takes 1 to 50 ms. The ring and the trees exist before the first message. "
    "Counting begins with that message and ends five seconds after the last one."
)


# -- DataFrame -> DataFrame --


def outcomes(trace: DataFrame) -> DataFrame:
    """Return a row per run with the share of expected deliveries, duplicates and times."""
    puts = trace.where("kind = 'publish'").groupBy(*RUN)
    owed = puts.agg(
        f.sum("value").alias("owed"), f.min("time").alias("first"), f.max("time").alias("last")
    )
    came = trace.where("kind = 'delivery'").groupBy(*RUN)
    got = came.agg(
        f.count_distinct("node", "subject").alias("got"),
        f.count("*").alias("came"),
        f.max("time").alias("ended"),
    )
    both = owed.join(got, list(RUN), "left").na.fill(0, ["got", "came"])
    return both.select(
        *RUN,
        (f.col("got") / f.col("owed")).alias("reliability"),
        (f.col("came") - f.col("got")).alias("again"),
        (f.col("got") / f.col("messages")).alias("deliveries"),
        (f.col("ended") - f.col("first")).alias("converged"),
        (f.col("ended") - f.col("last")).alias("after_last"),
    )


def latencies(trace: DataFrame) -> DataFrame:
    """Return a row per run with the seconds from publish to delivery."""
    keys = [*RUN, "subject"]
    puts = trace.where("kind = 'publish'").select(*keys, f.col("time").alias("put"))
    both = trace.where("kind = 'delivery'").select(*keys, "time").join(puts, keys)
    delay = f.col("time") - f.col("put")
    return both.groupBy(*RUN).agg(
        f.percentile_approx(delay, 0.5).alias("p50"),
        f.percentile_approx(delay, 0.99).alias("p99"),
        f.max(delay).alias("slowest"),
    )


def traffic(trace: DataFrame) -> DataFrame:
    """Return a row per run with the received messages by purpose, and the counted seconds."""

    def of(condition: Any, name: str) -> Any:
        count = f.when((f.col("kind") == "received") & condition, f.col("value"))
        return f.coalesce(f.sum(count), f.lit(0.0)).alias(name)

    subject = f.col("subject")
    parts = [of(subject.isin(*kinds), name) for name, kinds in PARTS.items()]
    layers = [of(subject.like(like), layer) for layer, like in LAYERS.items()]
    # Messages that Chord routes to Scribe are counted in both layers, but sent once.
    network = of(subject != "scribe.Routed", "network")
    window = f.max(f.when(f.col("kind") == "window", f.col("value"))).alias("window")
    counted = trace.where("kind in ('received', 'window')")
    return counted.groupBy(*RUN).agg(*parts, *layers, network, window)


def loads(trace: DataFrame) -> DataFrame:
    """Return a row per run with the mean and maximum messages handled per node."""
    handled = trace.where("kind in ('received', 'sent') and subject != 'scribe.Routed'")
    nodes = handled.groupBy(*RUN, "node").agg(f.sum("value").alias("handled"))
    mean = f.sum("handled") / f.first("nodes")
    return nodes.groupBy(*RUN).agg(
        mean.alias("load"),
        f.max("handled").alias("busiest"),
        (f.max("handled") / mean).alias("uneven"),
    )


def over_seeds(frame: DataFrame) -> DataFrame:
    """Return a row per setting with mean, minimum and maximum of each value over its seeds."""
    figures = [name for name in frame.columns if name not in RUN]
    means = [f.avg(name).alias(name) for name in figures]
    lowest = [f.min(name).alias(f"{name}_min") for name in figures]
    highest = [f.max(name).alias(f"{name}_max") for name in figures]
    seeds = f.count("*").alias("seeds")
    return frame.groupBy(*SETTING).agg(*means, *lowest, *highest, seeds).orderBy(*SETTING)


@lru_cache(maxsize=1)  # four experiments use the same runs
def summary(trace: DataFrame) -> Figures:
    """Return all values for all settings."""
    trace = trace.where(f.col("scenario") == SCENARIO)
    frame = outcomes(trace)
    for part in (latencies, traffic, loads):
        frame = frame.join(part(trace), list(RUN))
    return collected(over_seeds(frame))


# -- findings --


def of_source(figures: Figures, system: str = "scribe") -> Figures:
    """Return the values for the source's experiment with 20 nodes."""
    messages = [SOURCE_NODES * each for each in exp_publish.SOURCE_PUBLISHES]
    return [
        each
        for each in figures
        if each["system"] == system
        and each["nodes"] == SOURCE_NODES
        and each["messages"] in messages
    ]


def by_size(figures: Figures, system: str) -> Figures:
    """Return the values with 20 messages per node, or with the number used for large systems."""
    found = [each for each in figures if each["system"] == system]
    return [
        each
        for each in found
        if each["nodes"] not in SOURCE_SIZES or each["messages"] == each["nodes"] * SIZES_PUBLISHES
    ]


def all_came(figures: Figures) -> Must:
    complete = all(each["reliability"] == 1.0 and each["again"] == 0 for each in figures)
    return Must("every subscriber got every message, once", complete)


def share(value: float) -> str:
    return f"{100 * value:.4g}%"
