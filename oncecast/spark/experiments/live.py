"""The same on real processes, beside what the simulator says of runs of the same size (EXP-7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from oncecast.lab.experiments import failures as exp_failures
from oncecast.lab.experiments import live as exp_live
from oncecast.lab.experiments import publish as exp_publish
from oncecast.lab.papers.tables import Cell, Must, Table
from oncecast.spark.experiments.drawing import LABELS
from oncecast.spark.experiments.finding import RUN, Finding, collected
from oncecast.spark.experiments.publishing import latencies, outcomes, share, traffic
from oncecast.spark.experiments.replicas import disagreements, disorder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from oncecast.lab.experiments.runs import Run, Scale

PLACES = {
    exp_live.STORY: "processes",
    exp_publish.STORY: "simulated",
    exp_failures.STORY: "simulated",
}


def runs(scale: Scale) -> list[Run]:
    """On processes, and each also in the simulator."""
    return [*exp_live.runs(scale), *exp_live.simulated(scale)]


# -- DataFrame -> DataFrame --


def served(trace: DataFrame) -> DataFrame:
    """Of replicas: puts acknowledged before the leader was killed and after, and the silence."""
    acked = trace.where("kind = 'acked'")
    early = f.col("time") < exp_live.KILL_AFTER
    return acked.groupBy("system").agg(
        f.count(f.when(early, 1)).alias("before"),
        f.count(f.when(~early, 1)).alias("after"),
        (f.min(f.when(~early, f.col("time"))) - f.max(f.when(early, f.col("time")))).alias("gap"),
    )


# -- what is taken from them --


def live(trace: DataFrame) -> Finding:
    mine = trace.where(f.col("story") == exp_live.STORY)
    tables = (dissemination(trace), replicas(mine.where("system = 'paxos'")))
    return Finding(
        "live",
        "On real processes",
        "All of the source's experiments were run on real processes.",
        f"{exp_live.NODES} processes on one machine, over TCP, each with its own clock; the same "
        "protocols and the same way to count as in the simulator, whose figures stand beside them. "
        f"Where some fail, they are killed (SIGKILL) after {exp_live.KILL_AFTER:g} s. Simulated "
        "hops take 1 to 50 ms, real ones far less: compare counts, not times.",
        tables,
        (),
    )


def dissemination(trace: DataFrame) -> Table:
    rows: list[tuple[Cell, ...]] = []
    whole = True
    for story, place in PLACES.items():
        chosen = trace.where((f.col("story") == story) & (f.col("nodes") == exp_live.NODES))
        chosen = chosen.where(
            f"system in ('scribe', 'plumtree') and messages = {exp_live.MESSAGES}"
        )
        frame = outcomes(chosen)
        for part in (latencies, traffic):
            frame = frame.join(part(chosen), list(RUN))
        for each in collected(frame):
            rows.append(row(each, place))
            whole = whole and (each["share"] > 0 or each["reliability"] == 1.0)
    rows.sort(key=lambda each: (str(each[0]), str(each[1]), str(each[2])))
    return Table(
        f"{exp_live.NODES} nodes, {exp_live.MESSAGES} messages",
        (
            "system",
            "fail",
            "where",
            "reliability",
            "payloads a message",
            "Chord hops a message",
            "median ms",
            "p99 ms",
        ),
        tuple(rows),
        (Must("100% where nothing fails", whole),),
    )


def row(each: dict[str, Any], place: str) -> tuple[Cell, ...]:
    return (
        LABELS[each["system"]],
        f"{each['share']:.0%}",
        place,
        share(each["reliability"]),
        each["copies"] / each["messages"],
        each["hops"] / each["messages"] if each["system"] == "scribe" else None,
        1000 * each["p50"],
        1000 * each["p99"],
    )


def replicas(trace: DataFrame) -> Table:
    unlike, unordered = disagreements(trace).count(), disorder(trace).count()
    found = collected(served(trace))
    rows = tuple((each["before"], each["after"], each["gap"]) for each in found)
    return Table(
        f"{exp_live.REPLICAS} replicas and a spare; the leader is killed",
        ("puts before", "puts after", "seconds without service"),
        rows,
        (
            Must("the same value at a place, at all replicas", not unlike),
            Must("every replica decides in rising order", not unordered),
            Must("puts go on under another leader", bool(rows) and all(each[1] for each in rows)),
        ),
    )
