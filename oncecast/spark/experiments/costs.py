"""EXP-1 and EXP-3: messages in the Scribe layer and in the Chord layer."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING, Any

from oncecast.lab.experiments.publish import SOURCE_NODES, SOURCE_SIZES
from oncecast.lab.papers.tables import Cell, Must, Table
from oncecast.spark.experiments import drawing
from oncecast.spark.experiments.drawing import BLUE, ORANGE, QUIET, SAND
from oncecast.spark.experiments.finding import Figure, Figures, Finding
from oncecast.spark.experiments.publishing import (
    SETTING_TEXT,
    all_came,
    by_size,
    of_source,
    share,
    summary,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# -- EXP-1 --


def scribe_messages(trace: DataFrame) -> Finding:
    figures = summary(trace)
    source, sizes = of_source(figures), by_size(figures, "scribe")
    return Finding(
        "scribe-messages",
        "Messages received in the Scribe layer",
        "20 nodes that each publish 10, 25, 50 or 75 messages (section 7.2.1, figure 3). "
        "Reliability “almost 100% every time”. The report gives no values.",
        SETTING_TEXT,
        (
            source_table(source),
            size_table(sizes),
        ),
        (
            Figure(
                "scribe-messages",
                "Left: figure 3 of the source; lines show the range over the seeds. Right: the "
                "cost of one message as the system grows; the distance between the lines is the "
                "cost of forwarders.",
                draw_scribe(source, sizes),
            ),
        ),
        scribe_answer(source),
    )


def scribe_answer(source: Figures) -> str:
    costs = [each["scribe"] / each["messages"] for each in source]
    complete = share(min((each["reliability"] for each in source), default=0.0))
    return (
        f"Reliability is {complete} in every run. The number of messages grows in proportion to "
        f"the publishes, as in figure 3: {min(costs, default=0.0):.1f} to "
        f"{max(costs, default=0.0):.1f} for each publish. Tree maintenance grows only with time."
    )


def source_table(source: Figures) -> Table:
    costs = [each["copies"] / each["messages"] for each in source]
    linear = bool(costs) and max(costs) <= 1.05 * min(costs)
    rows: list[tuple[Cell, ...]] = [
        (
            each["messages"] // SOURCE_NODES,
            "almost 100%",
            share(each["reliability"]),
            *(round(each[part]) for part in ("ways", "copies", "trees", "scribe")),
            each["scribe"] / each["messages"],
        )
        for each in source
    ]
    return Table(
        "20 nodes, as in the source",
        (
            "publishes per node",
            "source: reliability",
            "reliability",
            "routed to a root",
            "copies in trees",
            "tree maintenance",
            "total",
            "per publish",
        ),
        tuple(rows),
        (
            all_came(source),
            Must("copies are proportional to messages, within 5%", linear),
        ),
    )


def size_table(sizes: Figures) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            each["nodes"],
            each["messages"],
            each["deliveries"],
            each["copies"] / each["messages"],
            each["ways"] / each["messages"],
            each["trees"] / each["nodes"] / each["window"],
            share(each["reliability"]),
        )
        for each in sizes
    ]
    return Table(
        "by size",
        (
            "nodes",
            "published",
            "subscribers per message",
            "copies per message",
            "routed to a root",
            "maintenance per node per second",
            "reliability",
        ),
        tuple(rows),
        (all_came(sizes),),
        ("a tree sends one copy to each of its nodes: subscribers and forwarders",),
    )


def draw_scribe(source: Figures, sizes: Figures) -> bytes:
    with drawing.sheet() as made:
        left, right = made.panels
        names = {
            "copies in trees": "copies",
            "routed to a root": "ways",
            "tree maintenance": "trees",
        }
        labels = [str(each["messages"] // SOURCE_NODES) for each in source]
        draw_parts(left, source, names, labels, (BLUE, ORANGE, SAND))
        drawing.ranges(left, list(range(len(source))), source, "scribe")
        left.set(title="Received in the Scribe layer, 20 nodes", xlabel="publishes per node")
        nodes = [each["nodes"] for each in sizes]
        right.plot(
            nodes,
            [each["copies"] / each["messages"] for each in sizes],
            "o-",
            color=BLUE,
            label="copies sent",
        )
        right.plot(
            nodes,
            [each["deliveries"] for each in sizes],
            "--",
            color=QUIET,
            label="subscribers reached",
        )
        right.set_yscale("log")
        drawing.sizes(right, nodes)
        drawing.whole(right)
        right.set(title="Copies of one message", ylabel="messages (logarithmic)")
        right.legend(loc="upper left")
    return made.png


def draw_parts(
    panel: Any, source: Figures, names: dict[str, str], labels: list[str], colors: tuple[str, ...]
) -> None:
    """Draw all nodes' messages as stacked bars, with one part per name."""
    parts = {name: [each[key] for each in source] for name, key in names.items()}
    drawing.stacked(panel, labels, parts, colors)
    panel.set_ylabel("messages, all nodes")
    panel.legend(loc="upper left")


# -- EXP-3 --


def chord_messages(trace: DataFrame) -> Finding:
    sizes = by_size(summary(trace), "scribe")
    return Finding(
        "chord-messages",
        "Chord messages sent",
        "10, 20 and 30 nodes that each publish 20 messages (section 7.2.3, figure 5; its "
        "text has no values).",
        SETTING_TEXT + " Nodes stabilize once per second, and refresh one finger each time.",
        (chord_table(sizes),),
        (
            Figure(
                "chord-messages",
                "Left: figure 5 of the source; lines show the range over the seeds. Right: hops of "
                "a message to the root of its topic; lists of eight successors save the last hops.",
                draw_chord(sizes),
            ),
        ),
        chord_answer([each for each in sizes if each["nodes"] in SOURCE_SIZES]),
    )


def chord_answer(source: Figures) -> str:
    each_node = ", ".join(f"{each['chord'] / each['nodes']:,.0f}" for each in source)
    sizes = ", ".join(str(each["nodes"]) for each in source)
    return (
        f"The total grows a little faster than the number of nodes, as in figure 5: {each_node} "
        f"messages for each node of {sizes}. Most of them maintain the ring and the fingers at a "
        "fixed rate. Only the hops to a root grow, with the logarithm of the number of nodes."
    )


def chord_table(sizes: Figures) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            each["nodes"],
            each["messages"],
            *(round(each[part]) for part in ("routing", "ring", "fingers", "chord")),
            (each["ring"] + each["fingers"]) / each["nodes"] / each["window"],
            each["hops"] / each["messages"],
            log2(each["nodes"]) / 2,
        )
        for each in sizes
    ]
    logarithmic = all(
        each["hops"] / each["messages"] <= log2(each["nodes"]) / 2 + 1 for each in sizes
    )
    return Table(
        "sent by all nodes",
        (
            "nodes",
            "published",
            "routing",
            "ring maintenance",
            "finger maintenance",
            "total",
            "maintenance per node per second",
            "hops per message",
            "1/2 log2 N",
        ),
        tuple(rows),
        (
            all_came(sizes),
            Must("hops per message are at most 1/2 log2 N + 1", logarithmic),
        ),
        ("a hop is a message and its receipt; maintenance does not depend on publishes",),
    )


def draw_chord(sizes: Figures) -> bytes:
    with drawing.sheet() as made:
        left, right = made.panels
        source = [each for each in sizes if each["nodes"] in SOURCE_SIZES]
        names = {
            "routing": "routing",
            "ring maintenance": "ring",
            "finger maintenance": "fingers",
        }
        labels = [str(each["nodes"]) for each in source]
        draw_parts(left, source, names, labels, (BLUE, SAND, ORANGE))
        drawing.ranges(left, list(range(len(source))), source, "chord")
        left.set(title="Chord messages, 20 publishes per node", xlabel="nodes")
        nodes = [each["nodes"] for each in sizes]
        hops = [each["hops"] / each["messages"] for each in sizes]
        right.plot(nodes, hops, "o-", color=BLUE, label="measured")
        halves = [log2(each) / 2 for each in nodes]
        right.plot(nodes, halves, "--", color=QUIET, label="½ log₂ N, from the Chord paper")
        drawing.sizes(right, nodes)
        right.set_ylim(bottom=0)
        right.set(title="Hops of a message to its root", ylabel="hops, mean")
        right.legend(loc="upper left")
    return made.png
