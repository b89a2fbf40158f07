"""Measure two commits alternately and print the ratio of their speeds.

    python -m tools.compare_speed OLD [NEW] --rounds 5

NEW defaults to the last commit. Each round runs both commits, in alternating order. A ratio above 1
means that NEW is faster. The exit status is 1 if a median ratio is below --at-least.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from tools.compare_traces import checkout

ROW = "{:<20} {:>12} {:>12} {:>7} {:>7} {:>7}"
OURS = "oncecast"
Rates = dict[str, float]  # measure -> rate; higher is better


def python(tree: Path, *words: str) -> str:
    """Run a module of that commit, and return its output."""
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(words)} exited with status {done.returncode} in {tree}")
    return done.stdout


def of_bench(module: str, *words: str) -> Callable[[Path], Rates]:
    """Return the measurement of a benchmark; skip NATS if it is not installed."""

    def measured(tree: Path) -> Rates:
        with TemporaryDirectory(prefix="oncecast-speed-") as directory:
            file = Path(directory) / "figures.json"
            python(tree, module, *words, "--rounds", "1", "--json", str(file))
            results: dict[str, Any] = json.loads(file.read_text())["results"]
        rates = {}
        for key, found in results.items():
            figure = found[OURS]["median"]
            rates[f"{module} {key}"] = 1e6 / figure if found["unit"] == "us" else figure
        return rates

    return measured


def sim_bench(tree: Path) -> Rates:
    output = python(tree, "oncecast", "sim", "bench", "--nodes", "1000", "--repeat", "1", "--json")
    return {"sim bench": json.loads(output)["events_per_second"]}


def paxos_seeds(tree: Path) -> Rates:
    """Return the seeds per second of CPU time, which depends less on other processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    python(tree, "oncecast", "sim", "run", "paxos", "--seeds", "1..100", "--jobs", "1")
    return {
        "100 paxos seeds": 100 / (resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
    }


MEASUREMENTS: dict[str, Callable[[Path], Rates]] = {
    "peers": of_bench("bench.peers", "--peers", "NATS", "--messages", "300000"),
    "group": of_bench("bench.group", "--peers", "NATS R3", "--messages", "200000"),
    "sim": sim_bench,
    "paxos": paxos_seeds,
}


def compare(trees: tuple[Path, Path], chosen: Sequence[str], rounds: int) -> dict[str, float]:
    """Print a row for each measure; return the median ratios."""
    print(ROW.format("measure", "old", "new", "ratio", "min", "max"))
    ratios = {}
    for name in chosen:
        pairs: dict[str, list[tuple[float, float]]] = {}
        for number in range(rounds):
            order = (0, 1) if number % 2 == 0 else (1, 0)
            found = {which: MEASUREMENTS[name](trees[which]) for which in order}
            for key in found[0]:
                pairs.setdefault(key, []).append((found[0][key], found[1][key]))
            print(f"{name}: round {number + 1} of {rounds}", file=sys.stderr)
        for key, each in pairs.items():
            of_rounds = [new / old for old, new in each]
            ratios[key] = median(of_rounds)
            old, new = (median(side) for side in zip(*each, strict=True))
            low, high = (f"{end:.2f}" for end in (min(of_rounds), max(of_rounds)))
            print(ROW.format(key, f"{old:,.0f}", f"{new:,.0f}", f"{ratios[key]:.2f}", low, high))
    return ratios


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools.compare_speed", description=__doc__)
    parser.add_argument("old", metavar="OLD", help="baseline commit")
    about = "commit to compare with OLD (default: HEAD)"
    parser.add_argument("new", metavar="NEW", nargs="?", default="HEAD", help=about)
    parser.add_argument("--rounds", type=int, default=5, help="rounds per commit (default: 5)")
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, default=list(MEASUREMENTS))
    parser.add_argument(
        "--at-least",
        type=float,
        default=0.97,
        help="minimum acceptable speed ratio (default: 0.97)",
    )
    given = parser.parse_args(words)
    with checkout(given.old) as old, checkout(given.new) as new:
        ratios = compare((old, new), given.only, given.rounds)
    return 1 if any(ratio < given.at_least for ratio in ratios.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
