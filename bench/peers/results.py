"""Summarize the figures of many rounds: medians, ranges, ratios by round, and a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from math import ceil
from statistics import median
from typing import Any

from bench.peers.measures import Measure

OURS = "oncecast"
PERCENT = (50, 90, 99, 99.9)


@dataclass(frozen=True)
class Spread:
    median: float
    min: float
    max: float


def spread(values: Sequence[float]) -> Spread:
    return Spread(median(values), min(values), max(values))


def percentiles(samples: Sequence[float]) -> dict[str, float]:
    """Return the percentiles in PERCENT, by name."""
    ordered = sorted(samples)
    return {f"p{part:g}": ordered[ceil(len(ordered) * part / 100) - 1] for part in PERCENT}


@dataclass(frozen=True)
class Figures:
    """The figures for one measure, one for each system and round."""

    measure: Measure
    rounds: dict[str, list[float]]
    # One sample per message, from all rounds.
    samples: dict[str, list[float]] = field(default_factory=dict)
    conditions: dict[str, Any] = field(default_factory=dict)

    def ratio(self, name: str) -> Spread | None:
        """Return the spread of oncecast's figures divided by this system's, round by round."""
        if name == OURS or OURS not in self.rounds:
            return None
        pairs = zip(self.rounds[OURS], self.rounds[name], strict=True)
        return spread([ours / theirs for ours, theirs in pairs])

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"title": self.measure.title, "unit": self.measure.unit}
        if self.conditions:
            found["conditions"] = self.conditions
        for name, values in self.rounds.items():
            ratio, target = self.ratio(name), self.measure.targets.get(name)
            found[name] = {"rounds": values, **asdict(spread(values))}
            if name in self.samples:
                found[name]["percentiles"] = percentiles(self.samples[name])
            if ratio is not None:
                found[name]["ratio"] = asdict(ratio)
                if target is not None:
                    found[name]["target"] = target
                    found[name]["ok"] = self.measure.reached(name, ratio.median)
        return found


HEAD = ("measure", "system", "median", "min", "max", "ratio", "min", "max", "target", "")
FIGURES = (False, False, *[True] * 6, False, False)
RULE = "---"


def table(all_figures: Sequence[Figures]) -> str:
    """Return the table in Markdown."""
    rows = [HEAD, tuple(RULE for _ in HEAD)]
    for figures in all_figures:
        title = f"{figures.measure.title} ({figures.measure.unit})"
        for name, values in figures.rounds.items():
            rows.append((title, name, *formatted(spread(values), ",.0f"), *beside(figures, name)))
            title = ""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("| " + " | ".join(map(pad, row, widths, FIGURES)) + " |" for row in rows)


def latencies(all_figures: Sequence[Figures]) -> Iterator[str]:
    """Yield the conditions of the measure, and then a line with the percentiles of each system."""
    for figures in all_figures:
        if figures.samples:
            said = ", ".join(f"{key} {value}" for key, value in figures.conditions.items())
            yield f"{figures.measure.title} ({figures.measure.unit}): {said}"
        for name, samples in figures.samples.items():
            parts = [f"{part} {value:,.0f}" for part, value in percentiles(samples).items()]
            yield f"    {name}: {', '.join(parts)} of {len(samples):,} messages"


def beside(figures: Figures, name: str) -> tuple[str, ...]:
    """Return the columns that compare oncecast with this system."""
    ratio = figures.ratio(name)
    if ratio is None:
        return ("", "", "", "", "")
    measure = figures.measure
    verdict = {None: "", True: "ok", False: "SHORT"}[measure.reached(name, ratio.median)]
    target = measure.targets.get(name)
    sign = "<=" if measure.less_is_better else ">="
    return (*formatted(ratio, ".2f"), f"{sign} {target:g}" if target else "", verdict)


def formatted(figures: Spread, form: str) -> tuple[str, ...]:
    return tuple(format(each, form) for each in (figures.median, figures.min, figures.max))


def pad(text: str, width: int, figure: bool) -> str:
    """Return a cell, padded to the width of its column."""
    if text == RULE:
        return RULE[0] * width
    return text.rjust(width) if figure else text.ljust(width)
