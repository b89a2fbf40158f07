"""PIPE-2: test the plan and the findings of a stream torture run with few kills."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.spark.torture.__main__ import CLUSTERS, held
from bench.spark.torture.cases import CASES, Kills
from bench.spark.torture.pipeline import CLEAR, Findings, compared


def test_kills_are_spread_over_driver_runs_and_two_clusters() -> None:
    kills = Kills(20, 20, 10)
    first, second = kills.half(second=False), kills.half(second=True)
    assert (first, second) == (Kills(10, 10, 5), Kills(10, 10, 5))
    assert Kills(1, 3, 0).half(second=False) == Kills(1, 2, 0)
    assert Kills(1, 3, 0).half(second=True) == Kills(0, 1, 0)
    assert [first.due(life) for life in range(3)] == [(1, 1, 0), (1, 1, 1), (1, 1, 0)]
    assert Kills(*map(sum, zip(*map(first.due, range(10)), strict=True))) == first


def test_lost_and_duplicated_results_are_found() -> None:
    results = [b"seen 0", b"seen 1", b"seen 2"]
    assert compared(3, results) == Findings(3, 3, 0, 0, [])
    assert compared(3, results[1:]) == Findings(3, 2, 1, 0, ["seen 0"])
    assert compared(3, [*results, b"seen 2"]) == Findings(3, 4, 0, 1, ["seen 2"])
    assert compared(2, results) == Findings(2, 3, 0, 1, ["seen 2"])


@pytest.mark.parametrize("fault", ["lost", "doubled", "missing"])
def test_part_with_a_fault_does_not_pass(fault: str) -> None:
    part = {"lost": 0, "doubled": 0, "missing": 0}
    assert held(part)
    assert not held({**part, fault: 1})


@pytest.mark.soak
@pytest.mark.parametrize("part", [*CLUSTERS, *CASES, "job"])
def test_small_torture_run_finds_no_faults(part: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    sizes = ["--drivers", "1", "--executors", "1", "--nodes", "1", "--topics", "40"]
    words = [*sizes, "--directory", str(tmp_path / "files"), "--json", str(report)]
    command = [sys.executable, "-m", "bench.spark.torture", *words, "--only", part]
    assert subprocess.run(command, check=False).returncode == 0
    (found,) = json.loads(report.read_text())
    assert found["results"] == found["put"]
    assert part not in CASES or found["ended"].keys() <= CLEAR
