"""Test the harness that measures a node's resource usage."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cost.__main__ import parts, show
from bench.cost.node import Figure, most
from tools.check_docs import ROOT


@pytest.mark.parametrize(("value", "ok"), [(299.0, True), (300.0, True), (300.1, False)])
def test_figure_at_its_limit_meets_the_target(value: float, ok: bool) -> None:
    assert most("memory", value, "MB", 300) == Figure("memory", value, "MB", "<= 300", ok)


def test_figure_is_shown_with_its_target_and_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    show(Figure("rate", 1_234_567.0, "msg/s"))
    show(Figure("ratio", 0.75, "", ">= 0.8", False))
    rate, ratio = capsys.readouterr().out.splitlines()
    assert rate.split() == ["rate", "1,234,567", "msg/s"]
    assert ratio.split() == ["ratio", "0.75", ">=", "0.8", "SHORT"]


def test_benchmark_page_names_every_part() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    for name in parts(1.0, Path()):
        assert f"`{name}`" in page
