"""EXP-2: the time until all messages have reached all subscribers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncecast.lab.experiments.publish import SOURCE_NODES
from oncecast.lab.papers.tables import Cell, Table
from oncecast.spark.experiments import drawing
from oncecast.spark.experiments.drawing import COLORS, LABELS, QUIET
from oncecast.spark.experiments.finding import Figure, Figures, Finding
from oncecast.spark.experiments.publishing import (
    SETTING_TEXT,
    all_came,
    by_size,
    of_source,
    summary,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SYSTEMS = ("scribe", "plumtree", "flood")


def convergence(trace: DataFrame) -> Finding:
    figures = summary(trace)
    return Finding(
        "convergence",
        "Convergence time",
        "The same runs: the time until all messages have reached all nodes (section 7.2.2, figure "
        "4; the report gives no values). “The convergence time is more or less equal” "
        "to that of broadcast.",
        SETTING_TEXT + " So publishing itself takes a fifth of a second per message.",
        (
            source_table(figures),
            latency_table(figures),
        ),
        (
            Figure(
                "convergence",
                "Left: figure 4 of the source; publishing itself takes almost all of the time. "
                "Middle: the same runs without the publishing time; lines show the range over the "
                "seeds. Right: one message, median (lines) and 99th percentile (dots), as the "
                "system grows.",
                draw_convergence(figures),
            ),
        ),
        answer(figures),
    )


def answer(figures: Figures) -> str:
    means = {}
    for system in SYSTEMS:
        waits = [1000 * each["after_last"] for each in of_source(figures, system)]
        means[system] = sum(waits) / max(1, len(waits))
    return (
        "All three systems take about the same time from the first publish to the last delivery, "
        "as the source says. Publishing takes almost all of that time. The last message alone "
        f"shows the difference: Scribe takes {means['scribe']:.0f} ms, Plumtree "
        f"{means['plumtree']:.0f} ms and flooding {means['flood']:.0f} ms on average. A Scribe "
        "message first goes to the root of its tree; flooding uses the shortest path."
    )


def source_table(figures: Figures) -> Table:
    scribe = of_source(figures)
    others = [{each["messages"]: each for each in of_source(figures, one)} for one in SYSTEMS]
    rows: list[tuple[Cell, ...]] = []
    for messages in (each["messages"] for each in scribe):
        row = [system[messages] for system in others]
        rows.append(
            (
                messages // SOURCE_NODES,
                *(each["converged"] for each in row),
                *(1000 * each["after_last"] for each in row),
                *(1000 * each["p50"] for each in row),
            )
        )
    return Table(
        "20 nodes, as in the source",
        (
            "publishes per node",
            "first publish to last delivery, s: Scribe",
            "Plumtree",
            "flooding",
            "last publish to last delivery, ms: Scribe",
            "Plumtree",
            "flooding",
            "per message, median ms: Scribe",
            "Plumtree",
            "flooding",
        ),
        tuple(rows),
        (all_came(scribe),),
    )


def latency_table(figures: Figures) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (each["nodes"], LABELS[system], *(1000 * each[name] for name in ("p50", "p99", "slowest")))
        for system in SYSTEMS
        for each in by_size(figures, system)
    ]
    return Table(
        "from publish to delivery, milliseconds",
        ("nodes", "system", "median", "p99", "slowest"),
        tuple(rows),
        (all_came(by_size(figures, "scribe")),),
        (
            "the tree missed Plumtree's slowest messages, which were requested again after half a "
            "second",
        ),
    )


def draw_convergence(figures: Figures) -> bytes:
    with drawing.sheet(3) as made:
        left, middle, right = made.panels
        draw_source(left, figures, "converged", 1.0)
        left.set(title="Until all messages have arrived", ylabel="seconds from the first publish")
        left.legend(loc="upper left")
        draw_source(middle, figures, "after_last", 1000.0)
        middle.set(title="After the last publish", ylabel="milliseconds to the last delivery")
        for system in SYSTEMS:
            chosen = by_size(figures, system)
            nodes = [each["nodes"] for each in chosen]
            medians = [1000 * each["p50"] for each in chosen]
            right.plot(nodes, medians, "-", color=COLORS[system], label=LABELS[system])
            right.plot(nodes, [1000 * each["p99"] for each in chosen], "o", color=COLORS[system])
        right.plot([], [], "-", color=QUIET, label="median")
        right.plot([], [], "o", color=QUIET, label="99th percentile")
        drawing.sizes(right, [each["nodes"] for each in by_size(figures, "scribe")])
        right.set_ylim(bottom=0)
        drawing.whole(right)
        right.set(title="From publish to delivery", ylabel="milliseconds")
        right.legend(loc="upper left")
    return made.png


def draw_source(panel: Any, figures: Figures, name: str, scale: float) -> None:
    """Draw a figure of the source's experiment, with one bar per system."""
    for number, system in enumerate(SYSTEMS):
        chosen = of_source(figures, system)
        at = [index + 0.27 * (number - 1) for index in range(len(chosen))]
        heights = [scale * each[name] for each in chosen]
        panel.bar(at, heights, 0.25, color=COLORS[system], label=LABELS[system])
        drawing.ranges(panel, at, chosen, name, scale)
    publishes = [each["messages"] // SOURCE_NODES for each in of_source(figures)]
    panel.set_xticks(range(len(publishes)), [str(each) for each in publishes])
    panel.set_xlabel("publishes per node, five per second, 20 nodes")
