"""EXP-7: the same experiments with real processes, compared with simulated runs."""

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

RUN_BY = {
    exp_live.SCENARIO: "processes",
    exp_publish.SCENARIO: "simulated",
    exp_failures.SCENARIO: "simulated",
}


def runs(scale: Scale) -> list[Run]:
    """Return the runs with real processes, and the same runs in the simulator."""
    return [*exp_live.runs(scale), *exp_live.simulated(scale)]


# -- DataFrame -> DataFrame --


def served(trace: DataFrame) -> DataFrame:
    """Return the puts acknowledged before and after the kill, and the seconds without service."""
    acked = trace.where("kind = 'acked'")
    early = f.col("time") < exp_live.KILL_AFTER
    return acked.groupBy("system").agg(
        f.count(f.when(early, 1)).alias("before"),
        f.count(f.when(~early, 1)).alias("after"),
        (f.min(f.when(~early, f.col("time"))) - f.max(f.when(early, f.col("time")))).alias("gap"),
    )


# -- findings --


def live(trace: DataFrame) -> Finding:
    live_rows = trace.where(f.col("scenario") == exp_live.SCENARIO)
    tables = (dissemination(trace), replicas(live_rows.where("system = 'paxos'")))
    return Finding(
        "live",
        "Real processes",
        "The source ran all its experiments on real processes.",
        f"{exp_live.NODES} processes on one machine, over TCP, each with its own clock. Protocols "
        "and counting are the same as in the simulator. Victims are killed (SIGKILL) after "
        f"{exp_live.KILL_AFTER:g} s. Simulated hops take 1 to 50 ms, real ones far less: compare "
        "counts, not times.",
        tables,
        (),
    )


def dissemination(trace: DataFrame) -> Table:
    rows: list[tuple[Cell, ...]] = []
    whole = True
    for scenario, kind in RUN_BY.items():
        chosen = trace.where((f.col("scenario") == scenario) & (f.col("nodes") == exp_live.NODES))
        chosen = chosen.where(
            f"system in ('scribe', 'plumtree') and messages = {exp_live.MESSAGES}"
        )
        frame = outcomes(chosen)
        for part in (latencies, traffic):
            frame = frame.join(part(chosen), list(RUN))
        for each in collected(frame):
            rows.append(row(each, kind))
            whole = whole and (each["share"] > 0 or each["reliability"] == 1.0)
    rows.sort(key=lambda each: (str(each[0]), str(each[1]), str(each[2])))
    return Table(
        f"{exp_live.NODES} nodes, {exp_live.MESSAGES} messages",
        (
            "system",
            "fail",
            "run by",
            "reliability",
            "payloads per message",
            "Chord hops per message",
            "median ms",
            "p99 ms",
        ),
        tuple(rows),
        (Must("100% without failures", whole),),
    )


def row(each: dict[str, Any], kind: str) -> tuple[Cell, ...]:
    return (
        LABELS[each["system"]],
        f"{each['share']:.0%}",
        kind,
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
            Must("all replicas have the same value in each slot", not unlike),
            Must("every replica decides slots in order", not unordered),
            Must(
                "puts continue under another leader", bool(rows) and all(each[1] for each in rows)
            ),
        ),
    )
