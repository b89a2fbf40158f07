"""The style of the figures: one palette, light axes, and text that is legible at half size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

from oncecast.spark.experiments.finding import Figures

INK, QUIET, FAINT = "#1f2933", "#6b7785", "#d9dfe5"
BLUE, ORANGE, GREEN, RED, GREY, SAND = (
    "#1f6fb2",
    "#e07b1a",
    "#2e9e6b",
    "#c8372d",
    "#8a939e",
    "#e9c46a",
)
COLORS = {"scribe": BLUE, "plumtree": ORANGE, "flood": GREY, "live": GREEN}
LABELS = {
    "scribe": "Scribe over Chord",
    "plumtree": "Plumtree over HyParView",
    "flood": "flood over HyParView",
    "live": "Scribe, real processes",
}
STYLE = {
    "figure.dpi": 140,
    "figure.facecolor": "white",
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "text.color": INK,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.grid.axis": "y",
    "grid.color": FAINT,
    "grid.linewidth": 0.8,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 2.0,
    "lines.markersize": 5.5,
}


class Sheet:
    """A figure with its panels, and the finished picture."""

    def __init__(self, figure: Any, panels: list[Any]) -> None:
        self.figure, self.panels, self.png = figure, panels, b""


@contextmanager
def sheet(columns: int = 2, *, rows: int = 1, height: float = 3.9) -> Iterator[Sheet]:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.4 * columns, height * rows), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False)
        made = Sheet(figure, [panel for row in panels for panel in row])
        yield made
        file = BytesIO()
        # Without a version in the metadata, equal figures have equal bytes.
        figure.savefig(file, format="png", metadata={"Software": None})
        made.png = file.getvalue()


def whole(panel: Any, axis: str = "y") -> None:
    """Format an axis with thousands separators."""
    from matplotlib.ticker import FuncFormatter

    target = panel.yaxis if axis == "y" else panel.xaxis
    plain = FuncFormatter(lambda value, _: f"{value:,.10g}")
    target.set_major_formatter(plain)
    low, high = panel.get_ylim() if axis == "y" else panel.get_xlim()
    if target.get_scale() == "log":  # label values between decades if there are few decades
        named = "123456789" if high < 12 * low else "25" if high < 150 * low else ""
        target.set_minor_formatter(
            FuncFormatter(lambda value, _: f"{value:,.10g}" if f"{value:e}"[0] in named else "")
        )


def sizes(panel: Any, nodes: list[int]) -> None:
    """Set a logarithmic axis with labels for the measured sizes."""
    from matplotlib.ticker import NullLocator

    panel.set_xscale("log")
    panel.xaxis.set_minor_locator(NullLocator())
    named = [each for at, each in enumerate(nodes) if not at or each >= 1.45 * nodes[at - 1]]
    panel.set_xticks(named, [f"{each:,}" for each in named])
    panel.set_xlabel("nodes (logarithmic)")


def percent(panel: Any, lowest: float) -> None:
    """Set a percent axis that starts at 0, or just below the lowest value if all are high."""
    from matplotlib.ticker import FuncFormatter

    low = 0.0 if lowest < 0.6 else (int(lowest * 20) - 1) / 20
    panel.set_ylim(low, 1.0 + (1.0 - low) * 0.03)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}%"))


def ranges(panel: Any, at: list[float], figures: Figures, name: str, scale: float = 1.0) -> None:
    """Draw error bars from the lowest to the highest value over the seeds."""
    means = [scale * each[name] for each in figures]
    below = [scale * (each[name] - each[f"{name}_min"]) for each in figures]
    above = [scale * (each[f"{name}_max"] - each[name]) for each in figures]
    panel.errorbar(
        at, means, [below, above], fmt="none", ecolor=INK, elinewidth=0.9, capsize=2.5, zorder=10
    )


def stacked(
    panel: Any, labels: list[str], parts: dict[str, list[float]], colors: tuple[str, ...]
) -> None:
    """Draw stacked bars with their totals."""
    at = range(len(labels))
    below = [0.0] * len(labels)
    for (name, heights), color in zip(parts.items(), colors, strict=False):
        panel.bar(at, heights, 0.62, bottom=below, label=name, color=color)
        below = [one + other for one, other in zip(below, heights, strict=True)]
    for x, total in zip(at, below, strict=True):
        panel.annotate(
            f"{total:,.0f}",
            (x, total),
            ha="center",
            va="bottom",
            fontsize=9,
            xytext=(0, 7),  # above the error bar
            textcoords="offset points",
        )
    panel.set_xticks(list(at), labels)
    panel.set_ylim(0, max(below, default=1.0) * 1.3)
    whole(panel)
