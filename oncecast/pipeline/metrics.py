"""What traces say of speed: throughput, latency, lag and load (PIPE-4).

Latency is from the moment a client asks, by the clock of the process that wrote the trace. Of what
came more than once the first time counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as f

from oncecast.pipeline.experiments import drawing
from oncecast.pipeline.experiments.drawing import BLUE, GREEN, ORANGE, RED
from oncecast.pipeline.experiments.finding import Figure, Finding, collected
from oncecast.pipeline.transformations import READER
from oncecast.pipeline.transformations import TRACE as LINE
from oncecast.scenarios.tables import Cell, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Figures = list[dict[str, Any]]

TRACE = f"{LINE}, node string"  # a trace may say which node a client talked to
MESSAGE = ("topic", "producer", "sequence")
STEPS = 200  # of time that a picture shows, at most
SHARES = [at / 100 for at in range(1, 100)] + [0.999]
SHOWN = 12  # clients or nodes whose load is drawn
RATES = ("stored", "delivered", "redelivered")
STORED, GOT = "put to stored", "put to delivery"


# -- DataFrame -> DataFrame --


def timed(trace: DataFrame) -> DataFrame:
    """With seconds since the first line, cut into steps."""
    span = trace.agg(f.min("time").alias("began"), f.max("time").alias("ended"))
    trace = trace.crossJoin(f.broadcast(span))
    width = f.greatest(f.lit(1.0), f.ceil((f.col("ended") - f.col("began")) / STEPS))
    since = f.col("time") - f.col("began")
    return trace.withColumn("width", width).withColumn("at", f.floor(since / width) * width)


def throughput(trace: DataFrame) -> DataFrame:
    """Messages a second, step by step."""

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
    """One row for each message that was stored, and for each that came to a subscription."""
    puts = trace.where("kind = 'put'").select(*MESSAGE, f.col("time").alias("asked"))
    stored = trace.where("kind = 'stored'").groupBy(*MESSAGE).agg(f.min("time").alias("time"))
    came = trace.where("kind = 'delivery'").groupBy(*MESSAGE, "subscription")
    got = came.agg(f.min("time").alias("time")).drop("subscription")
    both = stored.withColumn("way", f.lit(STORED)).unionByName(got.withColumn("way", f.lit(GOT)))
    delay = ((f.col("time") - f.col("asked")) * 1000).alias("ms")
    return both.join(puts, list(MESSAGE)).select("way", "topic", delay)


def latency(delays: DataFrame) -> DataFrame:
    """Milliseconds, by way and by how many are quicker."""
    figures = delays.groupBy("way").agg(
        f.count("*").alias("messages"),
        f.percentile_approx("ms", SHARES, 10_000).alias("shares"),
        f.max("ms").alias("slowest"),
    )
    return figures.select("way", "messages", "shares", "slowest").orderBy(f.desc("way"))


def lag(trace: DataFrame) -> DataFrame:
    """By subscription and step: how many messages it is behind the end of its topic."""
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


def load(trace: DataFrame) -> DataFrame:
    """What each node had to do; where a trace names no nodes, what each client did."""

    def count(kind: str) -> Any:
        return f.count(f.when(f.col("kind") == kind, 1))

    who = f.coalesce("node", "client").alias("who")
    each = trace.groupBy(who).agg(
        f.first(f.col("node").isNotNull()).alias("is_node"),
        count("put").alias("puts"),
        count("delivery").alias("deliveries"),
        count("ack").alias("acks"),
        f.count("*").alias("events"),
    )
    return each.select("who", "is_node", "puts", "deliveries", "acks", "events").orderBy(
        f.desc("events"), "who"
    )


# -- the job --


def metrics(spark: SparkSession, paths: list[str]) -> Finding:
    trace = spark.read.schema(TRACE).option("mode", "FAILFAST").json(paths).cache()
    rates = without_gaps(collected(throughput(trace)))
    slow = collected(latency(delays(trace)))
    behind, loads = collected(lag(trace)), collected(load(trace))
    trace.unpersist()
    return Finding(
        "metrics",
        "Throughput, latency, lag and load",
        "",
        f"Traces: {', '.join(paths)}.",
        (rate_table(rates), latency_table(slow), lag_table(behind), load_table(loads)),
        (Figure("metrics", "All clients together.", draw(rates, slow, behind, loads)),),
    )


def without_gaps(rates: Figures) -> Figures:
    """Steps in which nothing happened have no row: they are given one."""
    known = {each["at"]: each for each in rates}
    width = rates[0]["width"] if rates else 1.0
    last = max(known, default=-1.0)
    steps = [number * width for number in range(int(last // width) + 1)]
    nothing = {"width": width, **dict.fromkeys(RATES, 0.0)}
    return [known.get(at, {"at": at, **nothing}) for at in steps]


def rate_table(rates: Figures) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name in RATES:
        figures = [each[name] for each in rates]
        total = sum(each[name] * each["width"] for each in rates)
        mean = sum(figures) / max(1, len(figures))
        rows.append((name, round(total), mean, max(figures, default=0.0)))
    return Table("throughput", ("what", "messages", "a second, mean", "most"), tuple(rows))


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
        lags = [each["lag"] for each in sorted(curve, key=lambda each: each["at"])]
        rows.append((*reader, sum(lags) / len(lags), max(lags), lags[-1]))
    columns = ("topic", "subscription", "mean", "most", "in the end")
    notes = ("at the end of each step of time, a second or more; what was forgone counts as read",)
    return Table("lag, messages", columns, tuple(rows), notes=notes)


def load_table(loads: Figures) -> Table:
    total = sum(each["events"] for each in loads) or 1
    names = ("puts", "deliveries", "acks")
    rows = tuple(
        (each["who"], *(each[name] for name in names), f"{each['events'] / total:.1%}")
        for each in loads
    )
    nodes = all(each["is_node"] for each in loads)
    notes = () if nodes else ("the traces do not say which node a client talked to",)
    title = "load a node" if nodes else "load a client"
    return Table(title, ("who", *names, "of all events"), rows, notes=notes)


def draw(rates: Figures, slow: Figures, behind: Figures, loads: Figures) -> bytes:
    with drawing.sheet(2, rows=2, height=3.5) as made:
        speed, delay, lags, shares = made.panels
        at = [each["at"] for each in rates]
        for name, color in (("stored", BLUE), ("delivered", ORANGE), ("redelivered", RED)):
            speed.step(at, [each[name] for each in rates], where="post", color=color, label=name)
        speed.set(title="Throughput", xlabel="seconds", ylabel="messages a second")
        drawing.whole(speed)
        for each, color in zip(slow, (BLUE, ORANGE), strict=False):
            points = [100 * share for share in SHARES]
            delay.plot(points, each["shares"], color=color, label=each["way"])
        delay.set_yscale("log")
        drawing.whole(delay)
        delay.set(
            title="Latency", xlabel="percent that are quicker", ylabel="milliseconds (logarithmic)"
        )
        steps: dict[float, list[int]] = {}
        for each in behind:
            steps.setdefault(each["at"], []).append(each["lag"])
        ordered = sorted(steps.items())
        lags.step(
            [when for when, _ in ordered],
            [max(each) for _, each in ordered],
            where="post",
            color=GREEN,
            label="subscription farthest behind",
        )
        lags.set(title="Lag", xlabel="seconds", ylabel="messages")
        drawing.whole(lags)
        few = loads[:SHOWN][::-1]
        shares.barh([each["who"] for each in few], [each["events"] for each in few], color=BLUE)
        shares.grid(visible=False)
        shares.grid(visible=True, axis="x")
        kind = "node" if loads and loads[0]["is_node"] else "client"
        shares.set(title=f"Load a {kind}", xlabel="events in the trace")
        drawing.whole(shares, "x")
        for panel in (speed, delay, lags):
            panel.legend(loc="best")
        for panel in (speed, lags):
            panel.set_ylim(bottom=0)
    return made.png
