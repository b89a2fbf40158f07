"""The figures of EXP-5."""

from __future__ import annotations

from oncecast.spark.experiments import drawing
from oncecast.spark.experiments.drawing import BLUE, COLORS, GREEN, LABELS, ORANGE, QUIET, RED
from oncecast.spark.experiments.finding import Figures

SYSTEMS = ("scribe", "plumtree", "flood")
WIDTHS = {"flood": 5.0, "plumtree": 3.2, "scribe": 1.6}  # so that overlapping lines stay visible


def draw_reliability(settings: Figures) -> bytes:
    nodes = sorted({each["nodes"] for each in settings})
    lowest = min(min(each["mending"], each["during"]) for each in settings)
    with drawing.sheet(max(1, len(nodes)), height=3.7) as made:
        for panel, count in zip(made.panels, nodes, strict=True):
            for system in SYSTEMS:
                chosen = [
                    each for each in settings if (each["system"], each["nodes"]) == (system, count)
                ]
                shares = [100 * each["share"] for each in chosen]
                mending = [each["mending"] for each in chosen]
                first = [each["during"] for each in chosen]
                color, width = COLORS[system], WIDTHS[system]
                name = LABELS[system]
                panel.plot(
                    shares, mending, "o-", color=color, lw=width, zorder=9 - width, label=name
                )
                panel.plot(shares, first, "o:", color=color, mfc="white", lw=1.2)
                drawing.ranges(panel, shares, chosen, "mending")
                drawing.ranges(panel, shares, chosen, "during")
            panel.set(title=f"{count:,} nodes", xlabel="nodes that fail at once, %")
        for panel in made.panels:
            drawing.percent(panel, lowest)
        made.panels[0].set_ylabel("share of expected deliveries")
        made.panels[0].plot([], [], "o:", color=QUIET, mfc="white", lw=1.2, label="first second")
        made.panels[0].plot([], [], "o-", color=QUIET, label="1 to 10 s after")
        made.panels[0].legend(loc="lower left")
    return made.png


def draw_times(times: Figures) -> bytes:
    largest = max(each["nodes"] for each in times)
    shares = [each for each in (0.1, 0.3, 0.5) if any(one["share"] == each for one in times)]
    times = [each for each in times if -3 <= each["second"] <= 12 and each["share"] in shares]
    lowest = min(each["came"] for each in times if each["nodes"] == largest)
    with drawing.sheet(max(1, len(shares)), height=3.5) as made:
        for panel, failed in zip(made.panels, shares, strict=True):
            for system in SYSTEMS:
                key = system, largest, failed
                curve = [
                    each for each in times if (each["system"], each["nodes"], each["share"]) == key
                ]
                panel.plot(
                    [each["second"] for each in curve],
                    [each["came"] for each in curve],
                    color=COLORS[system],
                    lw=WIDTHS[system],
                    zorder=9 - WIDTHS[system],
                    label=LABELS[system],
                )
            panel.axvline(0, color=RED, lw=1, ls="--", label="the failure")
            panel.set(
                title=f"{failed:.0%} of {largest:,} nodes fail",
                xlabel="published, seconds after the failure",
            )
            drawing.percent(panel, lowest)
        made.panels[0].set_ylabel("share of expected deliveries")
        made.panels[0].legend(loc="lower right")
    return made.png


def draw_repair(mended: Figures) -> bytes:
    nodes = sorted({each["nodes"] for each in mended})
    colors = dict(zip((0.1, 0.3, 0.5, 0.7), (BLUE, GREEN, ORANGE, RED), strict=True))
    with drawing.sheet(max(1, len(nodes)), height=3.7) as made:
        for panel, count in zip(made.panels, nodes, strict=True):
            for failed, color in colors.items():
                for kind, dash in (("successors", "-"), ("fingers", "--")):
                    curve = [
                        each
                        for each in mended
                        if (each["nodes"], each["share"], each["kind"]) == (count, failed, kind)
                    ]
                    panel.plot(
                        [each["time"] for each in curve],
                        [each["right"] for each in curve],
                        dash,
                        color=color,
                        label=f"{failed:.0%} fail: {kind}",
                    )
            panel.set(title=f"Chord ring of {count:,} nodes", xlabel="seconds after the failure")
            drawing.percent(panel, min(each["right"] for each in mended))
        made.panels[0].set_ylabel("share that is correct")
        made.panels[0].legend(loc="lower right")
    return made.png


def draw_comparison(quiet: Figures) -> bytes:
    nodes = sorted({each["nodes"] for each in quiet})
    with drawing.sheet(3, height=3.7) as made:
        cost, delay, load = made.panels
        for system in SYSTEMS:
            chosen = [each for each in quiet if each["system"] == system]
            at, color = [each["nodes"] for each in chosen], COLORS[system]
            payloads = [(each["copies"] + each["hops"]) / each["messages"] for each in chosen]
            cost.plot(at, payloads, "o-", color=color, label=LABELS[system])
            delay.plot(at, [1000 * each["p99"] for each in chosen], "o-", color=color)
            load.plot(at, [each["busiest"] / each["window"] for each in chosen], "o-", color=color)
            load.plot(at, [each["load"] / each["window"] for each in chosen], "--", color=color)
        load.plot([], [], "o-", color=QUIET, label="busiest node")
        load.plot([], [], "--", color=QUIET, label="mean of all")
        cost.set_yscale("log")
        load.set_yscale("log")
        for panel in made.panels:
            drawing.sizes(panel, nodes)
            drawing.whole(panel)
        cost.set(title="Payloads sent for one message", ylabel="messages (logarithmic)")
        delay.set(title="From publish to delivery, p99", ylabel="milliseconds")
        load.set(title="Messages that a node handles", ylabel="per second (logarithmic)")
        delay.set_ylim(bottom=0)
        cost.legend(loc="upper left")
        load.legend(loc="best")
    return made.png
