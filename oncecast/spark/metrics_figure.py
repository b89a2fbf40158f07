"""Draw throughput, latency, lag and load in one figure."""

from __future__ import annotations

from typing import Any

from oncecast.spark.experiments import drawing
from oncecast.spark.experiments.drawing import BLUE, GREEN, ORANGE, RED
from oncecast.spark.experiments.finding import Figures

# Node events, which `oncecast demo` adds to the trace.
NODE_EVENTS = {"killed": RED, "started": GREEN}
SHARES = [at / 100 for at in range(1, 100)] + [0.999]  # quantiles of latency
SHOWN = 12  # maximum number of clients or nodes shown
HEADROOM = 1.35  # factor by which an axis is longer than the data, to leave space for the legend


def draw(
    rates: Figures, slow: Figures, behind: Figures, loads: Figures, happened: Figures
) -> bytes:
    with drawing.sheet(2, rows=2, height=3.5) as made:
        speed, delay, lags, shares = made.panels
        draw_rates(speed, rates)
        draw_latency(delay, slow)
        draw_lag(lags, behind)
        for panel in (speed, lags):
            draw_node_events(panel, happened)
            panel.set_ylim(0, HEADROOM * panel.get_ylim()[1])
            panel.legend(loc="upper left", ncols=2)
            drawing.whole(panel)
        delay.legend(loc="upper left")
        draw_load(shares, loads)
    return made.png


def draw_rates(panel: Any, rates: Figures) -> None:
    at = [each["at"] for each in rates]
    for name, color in (("stored", BLUE), ("delivered", ORANGE), ("redelivered", RED)):
        panel.step(at, [each[name] for each in rates], where="post", color=color, label=name)
    panel.set(title="Throughput", xlabel="seconds", ylabel="messages per second")


def draw_latency(panel: Any, slow: Figures) -> None:
    for each, color in zip(slow, (BLUE, ORANGE), strict=False):
        points = [100 * share for share in SHARES]
        panel.plot(points, each["shares"], color=color, label=each["way"])
    panel.set_yscale("log")
    drawing.whole(panel)
    panel.set(
        title="Latency",
        xlabel="percent of messages that are faster",
        ylabel="milliseconds (logarithmic)",
    )


def draw_lag(panel: Any, behind: Figures) -> None:
    steps: dict[float, list[int]] = {}
    for each in behind:
        steps.setdefault(each["at"], []).append(each["lag"])
    most = [max(lags) for _, lags in sorted(steps.items())]
    label = "subscription with the largest lag"
    panel.step(sorted(steps), most, where="post", color=GREEN, label=label)
    panel.set(title="Lag", xlabel="seconds", ylabel="messages")


def draw_node_events(panel: Any, happened: Figures) -> None:
    for kind, color in NODE_EVENTS.items():
        times = [each["since"] for each in happened if each["kind"] == kind]
        for number, since in enumerate(times):
            label = None if number else f"a node is {kind}"
            panel.axvline(since, ymax=1 / HEADROOM, color=color, lw=1.4, ls=":", label=label)


def draw_load(panel: Any, loads: Figures) -> None:
    few = loads[:SHOWN][::-1]
    bars = panel.barh([each["name"] for each in few], [each["events"] for each in few], color=BLUE)
    panel.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=9)
    panel.margins(x=0.15)
    panel.grid(visible=False)
    panel.grid(visible=True, axis="x")
    kind = "node" if loads and loads[0]["is_node"] else "client"
    panel.set(title=f"Load per {kind}", xlabel="events in the trace")
    drawing.whole(panel, "x")
