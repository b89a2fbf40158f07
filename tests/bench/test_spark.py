"""The Spark benchmark computes ratios round by round and ignores the warm-up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from bench.spark.measures import side_by_side


def test_ratio_compares_figures_from_the_same_round() -> None:
    ours, theirs = iter([1.0, 10.0, 40.0, 30.0]), iter([9.0, 20.0, 50.0, 100.0])
    bench: Any = SimpleNamespace(rounds=3)
    ways = {"ours": lambda: next(ours), "theirs": lambda: next(theirs)}
    *rates, ratio = side_by_side(bench, ways, {"theirs": 0.6})
    assert [(each.what, each.value) for each in rates] == [
        ("ours (10 to 40)", 30.0),
        ("theirs (20 to 100)", 50.0),
    ]
    assert (ratio.what, ratio.value) == ("ours, beside theirs (0.30 to 0.80)", 0.5)
    assert (ratio.target, ratio.ok) == (">= 0.6", False)
