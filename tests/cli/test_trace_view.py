"""CLI-2: read and draw a growing trace."""

from __future__ import annotations

import json
from pathlib import Path

from oncecast.cli.sim.trace_view import Growing, chart


def line(kind: str, time: float) -> str:
    return json.dumps({"kind": kind, "time": time}) + "\n"


def test_partial_line_is_read_once_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    half = line("delivery", 2.0)
    path.write_text(line("put", 0.5) + line("stored", 1.0) + half[:9])
    growing = Growing(path)
    assert growing.read() == 1
    path.write_text(path.read_text() + half[9:] + line("stored", 3.0))
    assert growing.read() == 1
    assert growing.read() == 0
    assert growing.times == {"stored": [1.0, 3.0], "delivery": [2.0]}


def test_chart_shows_gaps_and_marks() -> None:
    stored = [at / 10 for at in range(600) if not 200 <= at < 300]
    first, second, ruler = chart({"stored": stored, "delivery": []}, [(20.0, "✗"), (30.0, "✓")])
    bars = first.removeprefix("stored    ")[:60]
    assert bars == "█" * 20 + " " * 10 + "█" * 30
    assert second.strip().startswith("delivered")
    assert (ruler.index("✗") - 10, ruler.index("✓") - 10) == (20, 30)
    assert ruler.endswith("60 s")


def test_trace_without_messages_has_no_chart() -> None:
    assert chart({"stored": [], "delivery": []}, []) == []
