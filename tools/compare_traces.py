"""Run the same seeds with two commits and report scenarios whose traces differ.

    python -m tools.compare_traces OLD [NEW] --seeds 1..200
    python -m tools.compare_traces --builds --seeds 1..200

NEW defaults to the working tree. Each commit is checked out to a temporary directory. With
`--builds`, the two sides are the working tree and its compiled copy in build/fast. A trace is
a hash of all inputs and effects of all nodes, and of the tags of their types. A renamed type keeps
its hash only if it has an explicit tag.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tools import compile as compiler

ROOT = Path(__file__).resolve().parent.parent
ROW = "{:<14} {:>6} {:>9}"


class Run(NamedTuple):
    """The result of one seed, which must be equal in both commits."""

    trace: str
    events: int
    violation: str


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Yield a directory with the files of `commit`."""
    with TemporaryDirectory(prefix="oncecast-traces-") as directory:
        archive = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-x", "-C", directory], input=archive.stdout, check=True)
        yield Path(directory)


def oncecast(tree: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, "-m", "oncecast", *words],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):  # status 1 means that a check failed, which is a valid result
        raise SystemExit(
            f"oncecast {' '.join(words)} exited with status {done.returncode} in {tree}"
        )
    return done.stdout


def scenarios(tree: Path) -> list[str]:
    return [line.split()[0] for line in oncecast(tree, "sim", "list").splitlines()]


def runs(tree: Path, scenario: str, seeds: str, jobs: int) -> dict[int, Run]:
    """Return the result of each seed."""
    words = ("sim", "run", scenario, "--seeds", seeds, "--jobs", str(jobs), "--json")
    lines = oncecast(tree, *words).splitlines()
    found = [json.loads(line) for line in lines if line.startswith('{"scenario"')]
    return {each["seed"]: Run(each["trace"], each["events"], each["violation"]) for each in found}


def compare(
    trees: tuple[Path, Path], chosen: list[str], seeds: str, jobs: int
) -> dict[str, list[int]]:
    """Print a row for each scenario; return the seeds that differ."""
    differing = {}
    print(ROW.format("scenario", "seeds", "differing"))
    for scenario in chosen or scenarios(trees[0]):
        old, new = (runs(tree, scenario, seeds, jobs) for tree in trees)
        assert old, f"no seed of {scenario} ran"
        differing[scenario] = [seed for seed in old if old[seed] != new.get(seed)]
        print(ROW.format(scenario, len(old), len(differing[scenario])), flush=True)
    return differing


@contextmanager
def commits(old: str, new: str | None) -> Iterator[tuple[Path, Path]]:
    """Yield the trees of two commits, or of a commit and the working tree."""
    with checkout(old) as first, checkout(new or "HEAD") as second:
        yield first, second if new else ROOT


@contextmanager
def builds() -> Iterator[tuple[Path, Path]]:
    """Yield this tree and its compiled copy. Exit if this tree is compiled."""
    if compiler.compiled_files(ROOT):
        raise SystemExit("the working tree is compiled; run `make pure`")
    compiler.copy_sources(compiler.COPY)
    compiler.build(compiler.COPY)
    os.chdir(ROOT)
    yield ROOT, compiler.COPY


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools.compare_traces", description=__doc__)
    parser.add_argument("old", metavar="OLD", nargs="?", help="baseline commit")
    about = "commit to compare with OLD (default: the working tree)"
    parser.add_argument("new", metavar="NEW", nargs="?", help=about)
    about = "compare the working tree with its compiled copy"
    parser.add_argument("--builds", action="store_true", help=about)
    parser.add_argument("--seeds", default="1..200", help="range of seeds (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="seeds to run in parallel (default: 2)")
    about = "scenario to compare; may be repeated (default: all scenarios)"
    parser.add_argument("--scenario", action="append", default=[], help=about)
    given = parser.parse_args(words)
    if given.builds == (given.old is not None):
        parser.error("specify a commit, or use --builds")
    with builds() if given.builds else commits(given.old, given.new) as trees:
        differing = compare(trees, given.scenario, given.seeds, given.jobs)
    for scenario, seeds in differing.items():
        if seeds:
            print(f"{scenario}: the traces of these seeds differ: {seeds[:10]}", file=sys.stderr)
    return 1 if any(differing.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
