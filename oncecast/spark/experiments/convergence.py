"""EXP-2: the time until all messages have reached all subscribers."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def convergence(trace: DataFrame) -> Finding:
    figures = summary(trace)
    return Finding(
        "convergence",
        "Convergence time",
        "The same runs: the time until all messages have reached all nodes (section 7.2.2, figure "
        "4; its text has no values). “The convergence time is more or less equal” "
        "to that of broadcast.",
        SETTING_TEXT + " So publishing itself takes a fifth of a second per message.",
        (
            source_table(of_source(figures), of_source(figures, "plumtree")),
            latency_table(figures),
        ),
        (
            Figure(
                "convergence",
                "Left: the source's experiment; publishing itself takes almost all of the time. "
                "Right: one message, median (lines) and 99th percentile (dots), as the system "
                "grows.",
                draw_convergence(figures),
            ),
        ),
    )


def source_table(scribe: Figures, plumtree: Figures) -> Table:
    gossip = {each["messages"]: each for each in plumtree}
    rows: list[tuple[Cell, ...]] = []
    for each in scribe:
        other = gossip[each["messages"]]
        rows.append(
            (
                each["messages"] // SOURCE_NODES,
                each["converged"],
                other["converged"],
                1000 * each["after_last"],
                1000 * other["after_last"],
                1000 * each["p50"],
                1000 * other["p50"],
            )
        )
    return Table(
        "20 nodes, as in the source",
        (
            "publishes per node",
            "first publish to last delivery, s: Scribe",
            "Plumtree",
            "last publish to last delivery, ms: Scribe",
            "Plumtree",
            "per message, median ms: Scribe",
            "Plumtree",
        ),
        tuple(rows),
        (all_came(scribe),),
    )


def latency_table(figures: Figures) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (each["nodes"], LABELS[system], *(1000 * each[name] for name in ("p50", "p99", "slowest")))
        for system in ("scribe", "plumtree", "flood")
        for each in by_size(figures, system)
    ]
    return Table(
        "from publish to delivery, milliseconds",
        ("nodes", "system", "median", "p99", "slowest"),
        tuple(rows),
        (all_came(by_size(figures, "scribe")),),
        (
            "Plumtree's slowest messages were missed by the tree, and requested again "
            "after half a second",
        ),
    )


def draw_convergence(figures: Figures) -> bytes:
    with drawing.sheet() as made:
        left, right = made.panels
        for system, shift in (("scribe", -0.2), ("plumtree", 0.2)):
            chosen = of_source(figures, system)
            at = [index + shift for index in range(len(chosen))]
            heights = [each["converged"] for each in chosen]
            bars = left.bar(at, heights, 0.38, color=COLORS[system], label=LABELS[system])
            left.bar_label(bars, fmt="%.1f", padding=2, fontsize=8)
        publishes = [each["messages"] // SOURCE_NODES for each in of_source(figures)]
        left.set_xticks(range(len(publishes)), [str(each) for each in publishes])
        left.set(
            title="Until all messages have arrived, 20 nodes",
            xlabel="publishes per node, five per second",
            ylabel="seconds from the first publish",
        )
        left.legend(loc="upper left")
        for system in ("scribe", "plumtree", "flood"):
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
