"""EXP-6: Multi-Paxos with one order at all replicas, elections and membership changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as f

from oncecast.lab.experiments.paxos import CRASH_AT, ELECTION, STORM, STORM_SECONDS
from oncecast.lab.papers.tables import Cell, Must, Table
from oncecast.spark.experiments import drawing
from oncecast.spark.experiments.drawing import BLUE, FAINT, GREEN, GREY, INK, ORANGE, RED
from oncecast.spark.experiments.finding import RUN, Figure, Figures, Finding, collected, violations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN_NODES = 5  # maximum replicas of the group in the figure
CALM_SHOWN = 3.0  # seconds after the storm that the figure includes


# -- DataFrame -> DataFrame --


def numbered_starts(trace: DataFrame) -> DataFrame:
    """Add the column `starts`, which counts the starts and installed states of the node so far."""
    before = Window.partitionBy(*RUN, "scenario", "node").orderBy("time", "line")
    starts = f.sum((f.col("kind").isin("up", "installed")).cast("int")).over(before)
    return trace.withColumn("starts", starts)


def disagreements(trace: DataFrame) -> DataFrame:
    """Return the slots whose value differs between replicas, or after a restart."""
    decided = trace.where("kind = 'decided'").groupBy("scenario", *RUN, "value")
    values = decided.agg(f.count_distinct("subject").alias("values"))
    return values.where("values > 1").select("scenario", *RUN, f.col("value").alias("slot"))


def disorder(trace: DataFrame) -> DataFrame:
    """Return the decisions for slots that do not follow the replica's previous decision."""
    decided = numbered_starts(trace).where("kind = 'decided'")
    before = Window.partitionBy("scenario", *RUN, "node", "starts").orderBy("line")
    after = decided.withColumn("previous", f.lag("value").over(before))
    return after.where("value <= previous").select("scenario", *RUN, "node", "value", "previous")


def storms(trace: DataFrame) -> DataFrame:
    """Return a row per scenario and size with event counts."""

    def count(condition: str) -> Any:
        return f.count(f.when(f.expr(condition), 1))

    runs = trace.groupBy("scenario", *RUN).agg(
        f.max(f.when(f.col("kind") == "decided", f.col("value"))).alias("slots"),
        count("kind = 'decided'").alias("decided"),
        count("kind = 'fault'").alias("faults"),
        count("kind = 'leader' and subject = node").alias("leaders"),
        f.count_distinct(f.when(f.expr("kind = 'added'"), f.struct("subject", "value"))).alias(
            "added"
        ),
        f.count_distinct(f.when(f.expr("kind = 'removed'"), f.struct("subject", "value"))).alias(
            "removed"
        ),
        count("kind = 'held'").alias("held"),
    )
    sums = ("slots", "decided", "faults", "leaders", "added", "removed", "held")
    totals = [f.sum(name).alias(name) for name in sums]
    return (
        runs.groupBy("scenario", "nodes")
        .agg(*totals, f.count("*").alias("runs"))
        .orderBy(f.desc("scenario"), "nodes")
    )


def gaps(trace: DataFrame) -> DataFrame:
    """Return a row per election with the seconds from the leader's crash to each event.

    The events are the election of the next leader, the first acknowledged put, and the new member.
    """
    election = trace.where(f.col("scenario") == ELECTION)
    crash = f.min(f.when(f.col("kind") == "fault", f.col("time"))).over(Window.partitionBy(*RUN))
    later = election.withColumn("crash", crash).where("time > crash")
    since = f.col("time") - f.col("crash")
    each = later.groupBy(*RUN).agg(
        f.min(f.when(f.col("kind") == "leader", f.when(f.expr("subject = node"), since))).alias(
            "elected"
        ),
        f.min(f.when(f.col("kind") == "acked", since)).alias("silent"),
        f.min(f.when(f.col("kind") == "added", since)).alias("replaced"),
    )
    return each.select("nodes", "seed", "elected", "silent", "replaced").orderBy("nodes", "seed")


# -- findings --


def multi_paxos(trace: DataFrame) -> Finding:
    trace = trace.where(f.col("scenario").isin(STORM, ELECTION)).cache()
    events, elections = event_table(trace), collected(gaps(trace))
    shown = shown_storm(trace)
    trace.unpersist()
    return Finding(
        "paxos",
        "Multi-Paxos: one order at all replicas",
        "“If all the replicas received the same information in the ordering of messages”, leader "
        "election, adding and removing of replicas, “obtaining good correctness results” (section "
        "7.4; no figures; faults are not named).",
        "Storm: three producers put 210 messages. Processes crash, hang and lose their disks, "
        "bits flip on disk, and clocks drift. The network partitions, loses and duplicates "
        f"messages. Members and leaders change on purpose, for {STORM_SECONDS:g} s. Then the "
        f"faults stop, and all pending work must complete. Election: after {CRASH_AT:g} s "
        "without faults, the leader crashes for good; followers start an election after half a "
        "second of silence. The simulator checks every Paxos rule after every event, and Spark "
        "checks the order again from the trace.",
        (
            events,
            election_table(elections),
        ),
        (
            Figure(
                "paxos-storm",
                f"One storm over a group of {shown['nodes']} (seed {shown['seed']}): running "
                "nodes, leaders, faults and decisions.",
                draw_storm(shown),
            ),
            Figure(
                "paxos-election",
                "The leader crashes: time until another node leads, and until clients are "
                "served again.",
                draw_elections(elections),
            ),
        ),
    )


def event_table(trace: DataFrame) -> Table:
    totals = collected(storms(trace))
    unlike, unordered = disagreements(trace).count(), disorder(trace).count()
    broken = violations(trace)
    return Table(
        "events, over all runs of one size",
        (
            "scenario",
            "replicas",
            "runs",
            "faults",
            "leaders elected",
            "added",
            "removed",
            "slots decided",
            "decisions at replicas",
        ),
        tuple(happened(each) for each in totals),
        (
            Must("all replicas always have the same value in each slot", not unlike),
            Must("every replica decides slots in order, without repetition", not unordered),
            Must("no rule is broken in any run, and everything completes", not broken),
        ),
        tuple(broken[:10]),
    )


def happened(each: dict[str, Any]) -> tuple[Cell, ...]:
    names = ("runs", "faults", "leaders", "added", "removed", "slots", "decided")
    return (each["scenario"], each["nodes"], *(int(each[name]) for name in names))


def election_table(elections: Figures) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for nodes in sorted({each["nodes"] for each in elections}):
        chosen = [each for each in elections if each["nodes"] == nodes]
        cells: list[Cell] = []
        for name in ("elected", "silent", "replaced"):
            ordered = sorted(each[name] for each in chosen if each[name] is not None)
            cells += [ordered[len(ordered) // 2], ordered[-1]] if ordered else [None, None]
        rows.append((nodes, len(chosen), *cells))
    served = all(each["silent"] is not None for each in elections)
    replaced = all(each["replaced"] is not None for each in elections)
    return Table(
        "seconds after the leader crashed",
        (
            "replicas",
            "runs",
            "next leader elected: median",
            "maximum",
            "clients served again: median",
            "maximum",
            "seat filled again: median",
            "maximum",
        ),
        tuple(rows),
        (
            Must("another node leads and serves clients in every run", served),
            Must("a spare node takes the seat in every run", replaced),
        ),
    )


# -- figures --


def shown_storm(trace: DataFrame) -> dict[str, Any]:
    """Return the rows of the storm to draw: the first one with the largest group that fits."""
    storm = trace.where((f.col("scenario") == STORM) & (f.col("nodes") <= SHOWN_NODES))
    first = storm.orderBy(f.desc("nodes"), "seed").select("nodes", "seed").first()
    assert first is not None, "no storm was run"
    chosen = storm.where((f.col("nodes") == first.nodes) & (f.col("seed") == first.seed))
    rows = chosen.where("kind != 'acked'").orderBy("line")
    return {"nodes": first.nodes, "seed": first.seed, "rows": collected(rows)}


def draw_storm(shown: dict[str, Any]) -> bytes:
    rows: Figures = shown["rows"]
    names = sorted({each["node"] for each in rows if each["kind"] == "up"})
    end = STORM_SECONDS + CALM_SHOWN
    with drawing.sheet(1, rows=2, height=3.2) as made:
        top, bottom = made.panels
        made.figure.set_size_inches(10.8, 6.2)
        for at, name in enumerate(names):
            node_rows = [each for each in rows if each["node"] == name]
            draw_node(top, bottom, at, name, node_rows, end)
        for time in [each["time"] for each in rows if each["node"] == "*"]:
            top.axvline(time, color=GREEN, lw=1, ls=":")
        top.set_yticks(range(len(names)), names)
        top.set_ylim(len(names) - 0.4, -0.6)
        top.grid(visible=False)
        top.axvspan(STORM_SECONDS, end, color="#f4f7fa", zorder=-5)
        bottom.axvspan(STORM_SECONDS, end, color="#f4f7fa", zorder=-5)
        top.broken_barh([], (0, 1), color=BLUE, label="leads")
        top.broken_barh([], (0, 1), color=FAINT, label="up")
        for name, (_, mark, color) in MARKS.items():
            top.plot([], [], mark, color=color, ms=7, mec="white", mew=0.6, label=name)
        top.plot([], [], ":", color=GREEN, label="network partitioned or slow")
        top.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        bottom.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), title="decided at")
        top.set(title="The storm and the calm after it", xlim=(0, end))
        bottom.set(
            title="One order: all lines coincide, no matter how late each replica is",
            xlabel="virtual seconds",
            ylabel="slot",
            xlim=(0, end),
        )
    return made.png


def draw_node(top: Any, bottom: Any, at: int, name: str, rows: Figures, end: float) -> None:
    """Draw one node: its state and faults in line `at` above, its decisions below."""
    top.broken_barh(spans(rows, up, end), (at - 0.32, 0.64), color=FAINT)
    top.broken_barh(spans(rows, leads, end), (at - 0.32, 0.64), color=BLUE)
    faults = [each for each in rows if each["kind"] == "fault"]
    for kinds, mark, color in MARKS.values():
        times = [each["time"] for each in faults if each["subject"] in kinds]
        top.plot(times, [at] * len(times), mark, color=color, ms=7, mec="white", mew=0.6)
    decided = [each for each in rows if each["kind"] == "decided"]
    color = (BLUE, ORANGE, GREEN, RED, INK, GREY, "#7b5ea7")[at % 7]
    bottom.step(
        [each["time"] for each in decided],
        [each["value"] for each in decided],
        where="post",
        color=color,
        lw=1.3,
        label=name,
    )


MARKS = {
    "crash": (("crash",), "X", RED),
    "disk lost or damaged": (("wipe", "flip", "halt"), "D", ORANGE),
    "hangs": (("pause",), "s", INK),
}


def up(row: dict[str, Any]) -> bool | None:
    """Return whether the node is up after this row, or None if the row does not change that."""
    if row["kind"] == "up":
        return True
    return False if row["kind"] == "fault" and row["subject"] in ("crash", "halt") else None


def leads(row: dict[str, Any]) -> bool | None:
    if row["kind"] == "leader":
        return bool(row["subject"] == row["node"])
    return False if up(row) is False else None


def spans(rows: Figures, state: Any, end: float) -> list[tuple[float, float]]:
    """Return the start and length of each period in which `state` holds."""
    found: list[tuple[float, float]] = []
    since: float | None = None
    for row in rows:
        now = state(row)
        if now and since is None:
            since = row["time"]
        elif now is False and since is not None:
            found.append((since, row["time"] - since))
            since = None
    return [*found, (since, end - since)] if since is not None else found


def draw_elections(elections: Figures) -> bytes:
    with drawing.sheet(1, height=3.6) as made:
        (panel,) = made.panels
        colors = (BLUE, ORANGE, GREEN)
        sizes = sorted({each["nodes"] for each in elections})
        for nodes, color in zip(sizes, colors, strict=False):
            for name, dash in (("elected", ":"), ("silent", "-")):
                chosen = [each for each in elections if each["nodes"] == nodes]
                times = sorted(each[name] for each in chosen if each[name] is not None)
                shares = [(at + 1) / len(times) for at in range(len(times))]
                label = f"{nodes} replicas" if name == "silent" else None
                panel.step([0, *times], [0, *shares], dash, where="post", color=color, label=label)
        panel.plot([], [], "-", color=GREY, label="clients are served again")
        panel.plot([], [], ":", color=GREY, label="next leader elected")
        drawing.percent(panel, 0.0)
        panel.set_xlim(left=0)
        panel.set(
            title="After a leader crash",
            xlabel="virtual seconds",
            ylabel="share of the runs",
        )
        panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        made.figure.set_size_inches(7.6, 3.4)
    return made.png
