"""Run many seeds of the scenarios that choose random options, and report how many passed.

    python -m tools.campaign build/campaign.jsonl --share 0.01 --first 0 --jobs 2

The whole campaign has 20,000 seeds of paxos, 5,000 each of ring and intruders, and 10,000 each of
service, workers and toolkit. Each finished chunk of seeds is a line in the file. If the campaign is
started again with the same file, it continues after the last finished chunk. Use a new file for
another commit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

CHUNK = 100  # seeds per chunk
ROW = "{:<14} {:>5} {:>8} {:>8} {:>7}"


class Storm(NamedTuple):
    scenario: str
    nodes: int  # 0 means the scenario's default
    seeds: int


STORMS = (
    Storm("paxos", 3, 10_000),
    Storm("paxos", 5, 10_000),
    Storm("ring", 0, 5_000),
    Storm("service", 0, 10_000),
    Storm("intruders", 0, 5_000),
    Storm("workers", 0, 10_000),
    Storm("mutex", 0, 2_000),
    Storm("mutex-lamport", 0, 2_000),
    Storm("queue-fifo", 0, 2_000),
    Storm("queue-paxos", 0, 2_000),
    Storm("election", 0, 2_000),
)


class Chunk(NamedTuple):
    """A range of seeds that run in one process."""

    scenario: str
    nodes: int
    first: int
    last: int


class Result(NamedTuple):
    chunk: Chunk
    failed: tuple[str, ...]  # a line for each failed seed


def chunks(first: int, share: float, only: Sequence[str]) -> list[Chunk]:
    """Return all chunks, ordered so that every scenario progresses at the same pace."""
    placed: list[tuple[float, Chunk]] = []
    for storm in [each for each in STORMS if each.scenario in only]:
        seeds = max(1, round(storm.seeds * share))
        for at in range(0, seeds, CHUNK):
            last = first + min(at + CHUNK, seeds) - 1
            placed.append((at / seeds, Chunk(storm.scenario, storm.nodes, first + at, last)))
    return [chunk for _, chunk in sorted(placed)]


def run(chunk: Chunk) -> Result:
    words = ["sim", "run", chunk.scenario, "--seeds", f"{chunk.first}..{chunk.last}"]
    words += ["--jobs", "1", "--json"]
    words += ["--nodes", str(chunk.nodes)] if chunk.nodes else []
    done = subprocess.run(
        [sys.executable, "-m", "oncecast", *words], capture_output=True, text=True, check=False
    )
    found = [
        json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"scenario"')
    ]
    if len(found) != chunk.last - chunk.first + 1:
        raise SystemExit(f"{' '.join(words)} ended early: {done.stderr[-2000:]}")
    return Result(
        chunk, tuple([f"{each['seed']}: {each['violation']}" for each in found if not each["ok"]])
    )


def read(file: Path) -> Iterator[Result]:
    """Yield the results of the chunks that an earlier run has finished."""
    for line in file.read_text().splitlines() if file.exists() else ():
        chunk, failed = json.loads(line)
        yield Result(Chunk(*chunk), tuple(failed))


def report(results: Sequence[Result]) -> None:
    print(ROW.format("storm", "nodes", "seeds", "passed", "failed"))
    for storm in STORMS:
        mine = [each for each in results if each.chunk[:2] == storm[:2]]
        seeds = sum(each.chunk.last - each.chunk.first + 1 for each in mine)
        failed = sum(len(each.failed) for each in mine)
        print(ROW.format(storm.scenario, storm.nodes or "-", seeds, seeds - failed, failed))
    for each in results:
        for line in each.failed:
            print(f"{each.chunk.scenario} ({each.chunk.nodes or 'default'} nodes) seed {line}")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="tools.campaign",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file", type=Path, help="file for the results, with one JSON line for each chunk of seeds"
    )
    parser.add_argument("--first", type=int, default=0, help="first seed (default: 0)")
    parser.add_argument(
        "--share", type=float, default=1.0, help="fraction of the seeds to run (default: 1)"
    )
    parser.add_argument(
        "--jobs", type=int, default=2, help="number of parallel processes (default: 2)"
    )
    names = list(dict.fromkeys([each.scenario for each in STORMS]))
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, help="scenarios to run (default: all)"
    )
    given = parser.parse_args(words)
    results = list(read(given.file))
    finished = {each.chunk for each in results}
    rest = [each for each in chunks(given.first, given.share, given.only) if each not in finished]
    given.file.parent.mkdir(parents=True, exist_ok=True)
    with given.file.open("a") as file, ThreadPoolExecutor(given.jobs) as pool:
        for number, done in enumerate(as_completed([pool.submit(run, each) for each in rest])):
            results.append(done.result())
            file.write(json.dumps(results[-1]) + "\n")
            file.flush()
            failed = len(results[-1].failed)
            print(f"{number + 1} of {len(rest)} chunks, {failed} failed", file=sys.stderr)
    report(results)
    return 1 if any(each.failed for each in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
