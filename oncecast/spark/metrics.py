"""Compute throughput, latency, lag and load from traces (PIPE-4).

Latency is measured from the client's request, by the clock of the process that wrote the trace. If
a message is delivered several times, the first delivery counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as f

from oncecast.lab.papers.tables import Cell, Table
from oncecast.spark.experiments.finding import Figure, Figures, Finding, collected
from oncecast.spark.metrics_figure import NODE_EVENTS, SHARES, draw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The columns of a trace that `oncecast load --trace` wrote.
TRACE = (
    "line long, time double, kind string, client string, topic string, subscription string, "
    "producer string, sequence long, offset long, redelivered boolean, node string"
)
READER = ("topic", "subscription")
MESSAGE = ("topic", "producer", "sequence")
STEPS = 100  # maximum time steps in a figure
FRAMING = ("begin", "end")  # kinds of lines that are not events
RATES = ("stored", "delivered", "redelivered")
STORED, GOT = "put to stored", "put to delivery"


# -- DataFrame -> DataFrame --


def timed(trace: DataFrame) -> DataFrame:
    """Add to each line its time step and the seconds since the first line.

    The width of a step is 1, 2 or 5 times a power of ten.
    """
    span = trace.agg(f.min("time").alias("began"), f.max("time").alias("ended"))
    trace = trace.crossJoin(f.broadcast(span))
    least = f.greatest(f.lit(0.001), (f.col("ended") - f.col("began")) / STEPS)
    ten = f.pow(f.lit(10.0), f.floor(f.log10(least)))
    times = f.when(least <= ten, 1).when(least <= 2 * ten, 2).when(least <= 5 * ten, 5)
    width, since = ten * times.otherwise(10), f.col("time") - f.col("began")
    trace = trace.withColumns({"width": width, "since": since})
    return trace.withColumn("at", f.floor(f.col("since") / f.col("width")) * f.col("width"))


def throughput(trace: DataFrame) -> DataFrame:
    """Return the messages per second for each time step."""

    def rate(kind: str) -> Any:
        return f.count(f.when(f.expr(kind), 1)) / f.col("width")

    steps = (
        timed(trace)
        .groupBy("at", "width")
        .agg(
            rate("kind = 'stored'").alias("stored"),
            rate("kind = 'delivery' and not redelivered").alias("delivered"),
            rate("kind = 'delivery' and redelivered").alias("redelivered"),
        )
    )
    return steps.select("at", "width", *RATES).orderBy("at")


def delays(trace: DataFrame) -> DataFrame:
    """Return how long each message took to be stored, and to reach each subscription."""
    puts = trace.where("kind = 'put'").select(*MESSAGE, f.col("time").alias("asked"))
    stored = trace.where("kind = 'stored'").groupBy(*MESSAGE).agg(f.min("time").alias("time"))
    came = trace.where("kind = 'delivery'").groupBy(*MESSAGE, "subscription")
    got = came.agg(f.min("time").alias("time")).drop("subscription")
    both = stored.withColumn("way", f.lit(STORED)).unionByName(got.withColumn("way", f.lit(GOT)))
    delay = ((f.col("time") - f.col("asked")) * 1000).alias("ms")
    return both.join(puts, list(MESSAGE)).select("way", "topic", delay)


def latency(delays: DataFrame) -> DataFrame:
    """Return quantiles of the latency in milliseconds."""
    figures = delays.groupBy("way").agg(
        f.count("*").alias("messages"),
        f.percentile_approx("ms", SHARES, 10_000).alias("shares"),
        f.max("ms").alias("slowest"),
    )
    return figures.select("way", "messages", "shares", "slowest").orderBy(f.desc("way"))


def lag(trace: DataFrame) -> DataFrame:
    """Return how many messages each subscription is behind, by time step."""
    events = timed(trace).where("kind in ('stored', 'delivery', 'subscribe')")
    ends = f.max(f.when(f.col("kind") == "stored", f.col("offset") + 1))
    topics = events.groupBy("topic", "at").agg(ends.alias("end"))
    came = f.max(
        f.when(f.col("kind") == "delivery", f.col("offset") + 1).otherwise(f.col("offset"))
    )
    readers = events.where("subscription is not null").groupBy(*READER, "at")
    reached = readers.agg(came.alias("reached"))
    begun = reached.groupBy(*READER).agg(f.min("at").alias("begun"))
    steps = topics.join(begun, "topic").where("at >= begun")
    far = Window.partitionBy(*READER).orderBy("at")
    both = steps.join(reached, [*READER, "at"], "left")
    behind = f.coalesce(f.max("end").over(far), f.lit(0)) - f.max("reached").over(far)
    return both.select(*READER, "at", f.greatest(behind, f.lit(0)).alias("lag"))


def node_events(trace: DataFrame) -> DataFrame:
    """Return the times at which nodes were killed and started."""
    found = timed(trace).where(f.col("kind").isin(*NODE_EVENTS))
    return found.select("since", "kind", "node").orderBy("since")


def load(trace: DataFrame) -> DataFrame:
    """Return the load of each node, or of each client if the trace has no nodes."""

    def count(kind: str) -> Any:
        return f.count(f.when(f.col("kind") == kind, 1))

    name = f.coalesce("node", "client").alias("name")
    each = trace.where(~f.col("kind").isin(*NODE_EVENTS, *FRAMING)).groupBy(name)
    sums = each.agg(
        f.first(f.col("node").isNotNull()).alias("is_node"),
        count("put").alias("puts"),
        count("delivery").alias("deliveries"),
        count("ack").alias("acks"),
        f.count("*").alias("events"),
    )
    return sums.select("name", "is_node", "puts", "deliveries", "acks", "events").orderBy(
        f.desc("events"), "name"
    )


# -- the job --


def metrics(spark: SparkSession, paths: list[str]) -> Finding:
    trace = spark.read.schema(TRACE).option("mode", "FAILFAST").json(paths).cache()
    rates = without_gaps(collected(throughput(trace)))
    slow = collected(latency(delays(trace)))
    behind = carried(collected(lag(trace)), rates[0]["width"] if rates else 1.0)
    loads, happened = collected(load(trace)), collected(node_events(trace))
    trace.unpersist()
    return Finding(
        "metrics",
        "Throughput, latency, lag and load",
        "",
        f"Traces: {', '.join(paths)}.",
        (rate_table(rates), latency_table(slow), lag_table(behind), load_table(loads)),
        (Figure("metrics", caption(happened), draw(rates, slow, behind, loads, happened)),),
    )


def caption(happened: Figures) -> str:
    events = [f"{each['node']} was {each['kind']} after {each['since']:.1f} s" for each in happened]
    return "; ".join(["All clients together", *events]) + "."


def without_gaps(rates: Figures) -> Figures:
    """Return the rates, with a row of zeros for each time step without events."""
    width = rates[0]["width"] if rates else 1.0
    # Round, because a multiple of the width divided by the width may be just below an integer.
    known = {round(each["at"] / width): each for each in rates}
    steps = range(max(known, default=-1) + 1)
    nothing = {"width": width, **dict.fromkeys(RATES, 0.0)}
    return [known.get(step, {"at": step * width, **nothing}) for step in steps]


def carried(behind: Figures, width: float) -> Figures:
    """Return the lags, repeating a reader's previous lag in each time step without events."""
    known = {
        (each["topic"], each["subscription"], round(each["at"] / width)): each["lag"]
        for each in behind
    }
    last = max((step for *_, step in known), default=-1)
    found: Figures = []
    for topic, subscription in sorted({reader[:2] for reader in known}):
        lag: int | None = None  # None before the reader starts
        for step in range(last + 1):
            lag = known.get((topic, subscription, step), lag)
            if lag is not None:
                at = {"at": step * width, "lag": lag}
                found.append({"topic": topic, "subscription": subscription, **at})
    return found


def rate_table(rates: Figures) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name in RATES:
        figures = [each[name] for each in rates]
        total = sum(each[name] * each["width"] for each in rates)
        mean = sum(figures) / max(1, len(figures))
        rows.append((name, round(total), mean, max(figures, default=0.0)))
    return Table("throughput", ("what", "messages", "mean per second", "maximum"), tuple(rows))


def latency_table(slow: Figures) -> Table:
    shares = {"median": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
    rows = tuple(
        (
            each["way"],
            each["messages"],
            *(each["shares"][SHARES.index(share)] for share in shares.values()),
            each["slowest"],
        )
        for each in slow
    )
    return Table("latency, milliseconds", ("way", "messages", *shares, "slowest"), rows)


def lag_table(behind: Figures) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for reader in sorted({(each["topic"], each["subscription"]) for each in behind}):
        curve = [each for each in behind if (each["topic"], each["subscription"]) == reader]
        lags = [each["lag"] for each in curve]
        rows.append((*reader, sum(lags) / len(lags), max(lags), lags[-1]))
    columns = ("topic", "subscription", "mean", "maximum", "at the end")
    notes = ("at the end of each time step; messages discarded by unsubscribing count as read",)
    return Table("lag, messages", columns, tuple(rows), notes=notes)


def load_table(loads: Figures) -> Table:
    total = sum(each["events"] for each in loads) or 1
    names = ("puts", "deliveries", "acks")
    rows = tuple(
        (each["name"], *(each[name] for name in names), f"{each['events'] / total:.1%}")
        for each in loads
    )
    nodes = all(each["is_node"] for each in loads)
    notes = () if nodes else ("the traces do not name the clients' nodes",)
    title = "load per node" if nodes else "load per client"
    return Table(title, ("name", *names, "share of events"), rows, notes=notes)
