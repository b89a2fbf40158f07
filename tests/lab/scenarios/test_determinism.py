"""NET-1: a seed replays a run exactly, in any process and with any hash seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from oncecast.lab.scenarios.catalogue import SCENARIOS
from oncecast.lab.scenarios.scenario import run

SMALL = {"broadcast", "hyparview", "mutex", "shuffle"}  # fast enough for `make quick`

MARKS = {"paxos-long": pytest.mark.soak}


def hashes(scenario: str, seeds: str, hash_seed: str) -> dict[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "oncecast", "sim", "run", scenario, "--seeds", seeds, "--json"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
        timeout=240,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["seed"]: line["trace"] for line in lines}


@pytest.mark.long
@pytest.mark.parametrize("count", [50, pytest.param(200, marks=pytest.mark.soak)])
def test_each_seed_gives_the_same_trace_with_any_hash_seed(count: int) -> None:
    seeds = f"0..{count - 1}"
    one, other = hashes("broadcast", seeds, "1"), hashes("broadcast", seeds, "2")
    assert len(one) == count
    assert len(set(one.values())) == count
    assert one == other


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=MARKS.get(name, [] if name in SMALL else pytest.mark.long))
        for name in sorted(SCENARIOS)
    ],
)
def test_same_seed_gives_the_same_run_twice_in_one_process(name: str) -> None:
    scenario = SCENARIOS[name]
    nodes = min(8, scenario.nodes)
    one, again, other = (run(scenario, seed, nodes).trace for seed in (5, 5, 6))
    assert one == again
    assert one != other
