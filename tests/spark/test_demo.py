"""Run the demo: three real nodes, one of them killed, and an audit of the trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oncecast.cli import commands, demo
from oncecast.cli.main import main
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


class Here:
    """Runs a pipeline command in this process, which already has a Spark session."""

    def __init__(self, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
        capsys.readouterr()
        self.status = main(words)
        self.output, self.complaint = capsys.readouterr()


def test_demo_kills_the_leader_and_the_audit_finds_no_faults(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SVC-2 SVC-10 PIPE-4"""
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    output: list[str] = []
    start = commands.Commands.start

    def started(self: commands.Commands, *words: str) -> Any:
        return start(self, *words) if words[0] == "load" else Here(capsys, words)

    monkeypatch.setattr(commands.Commands, "start", started)
    monkeypatch.setattr(demo.Story, "_say", lambda self, text, sign="": output.append(text))
    assert main(["demo", "--publishes", "600", "--out", str(tmp_path)]) == ExitStatus.OK
    assert any("kill -9" in each for each in output)
    assert output[-1].startswith("0 lost, 0 duplicated, 0 out of order")
    assert (tmp_path / "figures" / "metrics.png").stat().st_size > 0
    rows = [json.loads(line) for line in (tmp_path / "nodes.jsonl").read_text().splitlines()]
    assert [row["kind"] for row in rows] == ["begin", "killed", "started", "end"]
    assert rows[1]["node"] == rows[2]["node"]
    assert "Try next" in capsys.readouterr().out


def test_demo_without_spark_relies_on_the_client_checks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = {"lost": 0, "duplicated": 2, "out_of_order": 0}
    monkeypatch.setattr(demo.Story, "_start_nodes", lambda self: None)
    monkeypatch.setattr(demo.Story, "_load", lambda self: report)
    monkeypatch.setattr(demo, "needs_spark", lambda: 'pip install "oncecast[spark]"')
    assert main(["demo", "--out", str(tmp_path)]) == ExitStatus.FAILURE
    output = capsys.readouterr().out
    assert 'the figure: pip install "oncecast[spark]"' in output
    assert "0 lost, 2 duplicated, 0 out of order" in output
