"""EXP-5: a share of the nodes fails at once; trees on a ring against gossip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from oncecast.lab.experiments import failures as exp_failures
from oncecast.lab.experiments.failures import AFTER, STORY
from oncecast.lab.experiments.ring import REPAIR
from oncecast.lab.experiments.systems import SUBSCRIBED, TOPICS
from oncecast.lab.papers.tables import Cell, Must, Table
from oncecast.spark.experiments.drawing import LABELS
from oncecast.spark.experiments.failing_figures import (
    SYSTEMS,
    Figures,
    draw_comparison,
    draw_reliability,
    draw_repair,
    draw_times,
)
from oncecast.spark.experiments.finding import RUN, SETTING, Figure, Finding, collected
from oncecast.spark.experiments.publishing import by_size, share, summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PHASES = {
    "before": "put < 0",
    "during": "put >= 0 and put < 1",
    "mending": "put >= 1 and put < 10",
    "after": "put >= 10",
}
SUCCESSORS = 8  # that a node knows
CUT_OFF_MAX = 0.5  # nodes; where more are to be expected, a ring may stay broken
SMALL = 0.3  # up to which share the source's “small levels of failures” may go


# -- DataFrame -> DataFrame --


def messages(trace: DataFrame) -> DataFrame:
    """One row a message: when it was put, to how many it was owed, how many got it."""
    keys = [*RUN, "subject"]
    trace = trace.where((f.col("story") == STORY) & f.col("nodes").isin(*exp_failures.SIZES))
    puts = trace.where("kind = 'publish' and value > 0").select(
        *keys, f.col("time").alias("put"), f.col("value").alias("owed")
    )
    came = trace.where("kind = 'delivery'").groupBy(*keys)
    got = came.agg(f.count_distinct("node").alias("got"))
    both = puts.join(got, keys, "left").na.fill(0, ["got"])
    return both.select(*keys, "put", "owed", "got")


def reliability(messages: DataFrame) -> DataFrame:
    """One row a setting: the share of what was owed that came, by when it was put."""
    phases = [
        f.sum(f.when(f.expr(when), f.col("got"))) / f.sum(f.when(f.expr(when), f.col("owed")))
        for when in PHASES.values()
    ]
    named = [phase.alias(name) for phase, name in zip(phases, PHASES, strict=True)]
    worst = f.min(f.when(f.col("put") >= 0, f.col("got") / f.col("owed"))).alias("worst")
    return messages.groupBy(*SETTING).agg(*named, worst).orderBy(*SETTING)


def over_time(messages: DataFrame) -> DataFrame:
    """The same by half a second."""
    second = (f.floor(f.col("put") * 2) / 2).alias("second")
    came = (f.sum("got") / f.sum("owed")).alias("came")
    return messages.groupBy(*SETTING, second).agg(came).orderBy(*SETTING, "second")


def repair(trace: DataFrame) -> DataFrame:
    """The share of successors and fingers that are right, by time since the failure."""
    looks = trace.where(f.col("story") == REPAIR).where("kind in ('successors', 'fingers')")
    when = f.round("time", 3).alias("time")
    right = f.avg("value").alias("right")
    return looks.groupBy("nodes", "share", "kind", when).agg(right).orderBy("time")


# -- what is taken from them --


def failures(trace: DataFrame) -> Finding:
    sent = messages(trace).cache()
    settings, times = collected(reliability(sent)), collected(over_time(sent))
    sent.unpersist()
    mended = collected(repair(trace))
    quiet = [each for system in SYSTEMS for each in by_size(summary(trace), system)]
    return Finding(
        "failures",
        "Reliability under failures: structured against unstructured",
        "“Small levels of failures”, “near 100% of reliability in all tests”; ring and finger "
        "tables “positively maintained” (section 7.3; no figures). Against broadcast: much fewer "
        "messages, about the same convergence time, load more balanced (section 7.5).",
        f"{TOPICS} topics, each node subscribed to {SUBSCRIBED}; five messages a second by nodes "
        "that survive, owed to subscribers that survive. At time 0 a share of the nodes crashes at "
        "once, the one through which all have joined among them; nobody comes back. None of the "
        "three repeats what was lost: in a cluster, whoever sees a gap asks the owner's log.",
        (
            reliability_table(settings),
            repair_table(mended),
            comparison_table(quiet),
        ),
        (
            Figure(
                "failures",
                "Of the messages that are put in the ten seconds after the failure: the share of "
                "their surviving subscribers that gets them.",
                draw_reliability(settings),
            ),
            Figure(
                "failures-over-time",
                "The same, by the moment at which a message is put.",
                draw_times(times),
            ),
            Figure(
                "ring-repair",
                "What survivors know of their ring, and how soon they know it again.",
                draw_repair(mended),
            ),
            Figure(
                "structured-unstructured",
                "Without failures: what one message costs, how long it takes, and what nodes have "
                "to handle, in and out, upkeep included. From 100 nodes on fewer messages are put, "
                "and so there is less to handle.",
                draw_comparison(quiet),
            ),
        ),
    )


def reliability_table(settings: Figures) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for each in settings:
        source = None
        if each["system"] == "scribe" and each["nodes"] == 20 and each["share"] <= SMALL:
            source = "almost 100%" if each["share"] == 0 else "near 100%"
        phases = (share(each[name]) for name in PHASES)
        name = LABELS[each["system"]]
        rows.append((name, each["nodes"], f"{each['share']:.0%}", source, *phases))
    calm = all(each[phase] == 1.0 for each in settings if not each["share"] for phase in PHASES)
    healed = all(
        each["after"] == 1.0
        for each in settings
        if each["system"] != "flood" and each["share"] <= 0.5
    )
    return Table(
        "reliability, by when a message was put",
        (
            "system",
            "nodes",
            "fail",
            "source",
            "before",
            "first second",
            "next nine seconds",
            f"10 to {AFTER:g} s after",
        ),
        tuple(rows),
        (
            Must("100% where nothing fails", calm),
            Must("100% again ten seconds after up to half of the nodes failed", healed),
        ),
    )


def repair_table(mended: Figures) -> Table:
    rows: list[tuple[Cell, ...]] = []
    whole = True
    for nodes, failed in sorted({(each["nodes"], each["share"]) for each in mended}):
        looks = [each for each in mended if (each["nodes"], each["share"]) == (nodes, failed)]
        cells: list[Cell] = []
        for kind in ("successors", "fingers"):
            curve = [each for each in looks if each["kind"] == kind]
            wrong = [each["time"] for each in curve if each["right"] < 1.0]
            right = [each["time"] for each in curve if not wrong or each["time"] > wrong[-1]]
            whole = whole and (bool(right) or cut_off(nodes, failed) > CUT_OFF_MAX)
            cells += [share(curve[0]["right"]), right[0] if right else "not in time"]
        rows.append((nodes, f"{failed:.0%}", *cells))
    return Table(
        "ring and fingers after the failure",
        (
            "nodes",
            "fail",
            "right successors at once",
            "all right after, s",
            "right fingers at once",
            "all right after, s",
        ),
        tuple(rows),
        (Must("successors and fingers are right again, unless nodes are cut off", whole),),
        (
            "looked at twice a second; the mean of all rings of a size, all of which must be right",
            f"who loses all {SUCCESSORS} successors at once is cut off for good: of 1,000 nodes of "
            f"which half fail that happens to {cut_off(1000, 0.5):.0f}, on average, and lookups by "
            "way of them go wrong. Chord asks for lists that grow with the logarithm of the nodes",
        ),
    )


def cut_off(nodes: int, failed: float) -> float:
    """How many survivors have lost all successors that they knew, to be expected."""
    return nodes * (1 - failed) * failed**SUCCESSORS


def comparison_table(quiet: Figures) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            each["nodes"],
            LABELS[each["system"]],
            share(each["reliability"]),
            (each["copies"] + each["hops"]) / each["messages"],
            each["network"] / each["messages"],
            1000 * each["p50"],
            1000 * each["p99"],
            each["load"] / each["window"],
            each["busiest"] / each["window"],
            each["uneven"],
        )
        for each in sorted(quiet, key=lambda each: each["nodes"])
    ]
    costs = {(each["system"], each["nodes"]): each["copies"] + each["hops"] for each in quiet}
    # The largest systems are only played with trees.
    fewer = all(
        costs["scribe", nodes] < cost
        for (system, nodes), cost in costs.items()
        if system == "plumtree"
    )
    return Table(
        "structured against unstructured, nothing fails",
        (
            "nodes",
            "system",
            "reliability",
            "payloads a message",
            "all messages, a message",
            "median ms",
            "p99 ms",
            "handled a node and second",
            "by the busiest",
            "busiest / mean",
        ),
        tuple(rows),
        (Must("payloads: fewer in trees of subscribers than in broadcasts", fewer),),
        (
            f"a third of the nodes subscribe to a topic ({SUBSCRIBED} of {TOPICS}); if all did, "
            "trees would save nothing",
            "all messages: upkeep of ring, trees and views too, which is shared by however many "
            "messages there are; handled: in and out",
            "the source says that a DHT balances load better: here trees spare all nodes much, the "
            "busiest too, but are less even than broadcasts, in which all do the same",
            "where many publish at once Plumtree's tree keeps changing: it is grafted and pruned, "
            "which costs copies and half a second each time",
        ),
    )
