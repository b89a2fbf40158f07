"""PIPE-6 PIPE-7: seeds and sizes of a scenario run as Spark tasks."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncecast.cli.main import main
from oncecast.lab.scenarios.broadcast import BROADCAST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncecast.lab.scenarios.scenario import Outcome

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _kept(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda self: None)


def test_sweep_outcomes_match_local_runs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = str(tmp_path / "outcomes")
    words = ["sim", "sweep", "shuffle", "--nodes", "5,9", "--seeds", "0..2", "--out", where]
    assert main([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(each["nodes"], each["seeds"], each["failed"]) for each in report["sizes"]] == [
        (5, 3, 0),
        (9, 3, 0),
    ]
    rows = spark.read.parquet(where).where("nodes = 9").orderBy("seed").collect()
    assert main(["sim", "run", "shuffle", "--nodes", "9", "--seeds", "0..2", "--json"]) == 0
    here = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row.trace for row in rows] == [each["trace"] for each in here]


def test_failing_seed_is_reported_with_its_replay_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from oncecast.spark import sweep

    def breaks(scenario: str, seed: int, nodes: int | None) -> Outcome:
        from oncecast.lab.scenarios.scenario import Outcome

        wrong = "Violation: n1 forgot" if seed == 3 else ""
        return Outcome(scenario, seed, nodes or 5, not wrong, wrong, "", 1, 2.5, 0.1, {})

    sweep_all = partial(sweep.sweep, play=breaks)
    monkeypatch.setattr(sweep, "sweep", sweep_all)
    words = ["sim", "sweep", "broadcast", "--seeds", "0..4", "--out", str(tmp_path / "outcomes")]
    assert main(words) == 1
    out = capsys.readouterr().out
    assert f"broadcast, {BROADCAST.nodes} nodes: 5 seeds" in out
    assert "1 of 5 seeds FAILED" in out
    assert "seed 3 at 2.5 s: Violation: n1 forgot" in out
    assert f"replay: oncecast sim replay broadcast --nodes {BROADCAST.nodes} --seed 3" in out


def test_pieces_cover_every_seed_and_size_once() -> None:
    from oncecast.spark.sweep import divided

    pieces = divided("chord", [8, 100], range(5, 1005), cores=4)
    assert len(pieces) <= 34
    assert pieces[0].nodes == 100
    seeds = [(piece.nodes, seed) for piece in pieces for seed in piece.seeds]
    assert sorted(seeds) == [(nodes, seed) for nodes in (8, 100) for seed in range(5, 1005)]


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["nothing"], 3, "scenario 'nothing' does not exist; choose one of broadcast"),
        (["chord", "--nodes", "2"], 2, "chord needs at least 4 nodes; raise --nodes"),
    ],
)
def test_invalid_sweep_is_rejected(
    words: list[str], status: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sim", "sweep", *words]) == status
    assert text in capsys.readouterr().err
