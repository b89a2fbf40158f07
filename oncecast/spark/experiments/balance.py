"""EXP-4: the distribution of topics over nodes, with one position per node and with twenty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from oncecast.lab.experiments.ring import EVEN, OWNERSHIP, SOURCE_SIZES
from oncecast.lab.papers.tables import Cell, Must, Table
from oncecast.spark.experiments import drawing
from oncecast.spark.experiments.drawing import BLUE, GREEN, GREY, INK
from oncecast.spark.experiments.finding import RUN, SETTING, Figure, Finding, collected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Key = tuple[str, int]  # system and positions

WAYS: dict[Key, tuple[str, str]] = {
    ("chord", 1): ("one position per node", BLUE),
    ("chord", 20): ("twenty positions per node", GREEN),
    (EVEN, 1): ("random placement", GREY),
}


# -- DataFrame -> DataFrame --


def balance(trace: DataFrame) -> DataFrame:
    """Return a row per setting with minimum, maximum, 99th percentile and share of idle nodes.

    Each value is the mean over the rings of the setting.
    """
    owned = f.col("value")
    rings = trace.where((f.col("scenario") == OWNERSHIP) & (f.col("kind") == "owns")).groupBy(*RUN)
    each = rings.agg(
        f.min(owned).alias("least"),
        f.max(owned).alias("most"),
        f.percentile(owned, f.lit(0.99)).alias("p99"),
        f.avg((owned == 0).cast("double")).alias("idle"),
        f.avg(owned).alias("expected"),
    )
    means = [f.avg(name).alias(name) for name in ("least", "most", "p99", "idle", "expected")]
    spread = [
        edge(name).alias(f"{name}_{edge.__name__}")
        for name in ("least", "most")
        for edge in (f.min, f.max)
    ]
    settings = each.groupBy(*SETTING).agg(*means, *spread, f.count("*").alias("rings"))
    return settings.orderBy("nodes", "system", "positions")


# -- findings --


def load_balance(trace: DataFrame) -> Finding:
    figures = collected(balance(trace))
    source = [each for each in figures if each["nodes"] in SOURCE_SIZES]
    larger = [each for each in figures if each["nodes"] not in SOURCE_SIZES]
    uneven = {(way(each), each["nodes"]): each["most"] / each["expected"] for each in figures}
    better = all(
        uneven[("chord", 20), nodes] < value
        for (key, nodes), value in uneven.items()
        if key == ("chord", 1)
    )
    return Finding(
        "load-balance",
        "Load balance on the Chord layer",
        "30 topics on 10, 20 and 30 nodes (section 7.2.4, figure 6): 3, 1.5 and 1 topics per node "
        "are expected; “there are nodes that do not own a topic”, and some own more than expected "
        "(the report does not say how many). The report concludes that more nodes balance the load "
        "better.",
        "A topic belongs to the first position at or after the SHA-256 of its name. Small rings "
        "differ a lot, so each row is the mean of many rings with different names. We add sizes of "
        "up to 10,000 nodes, with three topics each.",
        (
            source_table(source, better),
            larger_table(larger),
        ),
        (
            Figure(
                "load-balance",
                "Left: figure 6 of the source. A bar is the mean of the maximum over all rings, a "
                "line shows the range, and a diamond is the mean of the minimum. Right: the "
                "effect of growth and of virtual positions.",
                draw(source, larger),
            ),
        ),
        answer(source),
    )


def answer(source: list[dict[str, Any]]) -> str:
    plain = [each for each in source if way(each) == ("chord", 1)]
    most = ", ".join(f"{each['most']:.1f}" for each in plain)
    over = ", ".join(f"{each['most'] / each['expected']:.1f}" for each in plain)
    sizes = ", ".join(str(each["nodes"]) for each in plain)
    return (
        f"As in figure 6, some nodes own no topic, and the maximum falls with more nodes: {most} "
        f"topics on the busiest of {sizes} nodes. But that is {over} times the expected number, so "
        "the relative load becomes less balanced, not more. Twenty positions per node make it more "
        "even."
    )


def source_table(source: list[dict[str, Any]], better: bool) -> Table:
    return Table(
        "30 topics, as in the source",
        (
            "nodes",
            "placement",
            "source: expected",
            "expected",
            "source: minimum",
            "minimum",
            "maximum",
            "range over rings",
            "maximum / expected",
            "nodes without a topic",
            "rings",
        ),
        tuple(row(each, ("source",)) for each in source),
        (Must("twenty positions are more even than one", better),),
        (
            "the maximum falls with more nodes, as the source says, but more slowly than the "
            "expected number, so the relative load is less even",
            "with one topic per node, a random placement leaves a third of them without "
            "a topic; no placement by hashing does better, but more positions come close",
        ),
    )


def larger_table(larger: list[dict[str, Any]]) -> Table:
    return Table(
        "three topics per node",
        (
            "nodes",
            "placement",
            "expected",
            "minimum",
            "maximum",
            "range over rings",
            "maximum / expected",
            "nodes without a topic",
            "rings",
        ),
        tuple(row(each, ()) for each in larger),
    )


def way(each: dict[str, Any]) -> Key:
    return each["system"], each["positions"]


def row(each: dict[str, Any], source: tuple[str, ...]) -> tuple[Cell, ...]:
    cells: list[Cell] = [each["nodes"], WAYS[way(each)][0]]
    if source:
        cells += [30 / each["nodes"], each["expected"], 0, each["least"]]
    else:
        cells += [each["expected"], each["least"]]
    return (
        *cells,
        each["most"],
        f"{each['most_min']:g} to {each['most_max']:g}",
        each["most"] / each["expected"],
        f"{each['idle']:.1%}",
        each["rings"],
    )


def draw(source: list[dict[str, Any]], larger: list[dict[str, Any]]) -> bytes:
    with drawing.sheet(2 if larger else 1) as made:
        left, *rest = made.panels
        for index, (key, (label, color)) in enumerate(WAYS.items()):
            chosen = [each for each in source if way(each) == key]
            at = [number + 0.27 * (index - 1) for number in range(len(chosen))]
            left.bar(at, [each["most"] for each in chosen], 0.24, color=color, label=label)
            drawing.ranges(left, at, chosen, "most")
            least = [each["least"] for each in chosen]
            left.plot(at, least, "D", mfc="white", mec=INK, ms=5, zorder=11, clip_on=False)
        nodes = sorted({each["nodes"] for each in source})
        for number, count in enumerate(nodes):
            expected = 30 / count
            left.plot([number - 0.42, number + 0.42], [expected] * 2, color=INK, lw=1.6)
        left.plot([], [], color=INK, lw=1.6, label="expected: 30 / nodes")
        left.plot([], [], "D", mfc="white", mec=INK, ms=5, label="fewest on one node")
        left.set_xticks(range(len(nodes)), [str(each) for each in nodes])
        left.set(title="Most and fewest topics on one node, of 30", xlabel="nodes", ylabel="topics")
        left.legend(loc="upper right")
        for right in rest:
            draw_larger(right, larger)
    return made.png


def draw_larger(panel: Any, larger: list[dict[str, Any]]) -> None:
    for key, (label, color) in WAYS.items():
        grown = [each for each in larger if way(each) == key]
        nodes = [each["nodes"] for each in grown]
        ratio = [each["most"] / each["expected"] for each in grown]
        panel.plot(nodes, ratio, "o-", color=color, label=label)
    drawing.sizes(panel, sorted({each["nodes"] for each in larger}))
    panel.set_ylim(bottom=0)
    panel.set(title="Most topics on one node, three per node", ylabel="multiples of the mean")
    panel.legend(loc="upper left")
