"""Compare systems in one run: each round measures the systems one after another.

The program reports and skips systems that are not installed. It writes progress to stderr, the
table to stdout, and all figures to the file given with --json.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from bench.peers.measures import Measure
from bench.peers.peer import Failed, System, mind_signals, say
from bench.peers.results import Figures, latencies, table
from oncecast.network.network import run

POLICIES = {
    os.SCHED_OTHER: "SCHED_OTHER",
    os.SCHED_BATCH: "SCHED_BATCH",
    os.SCHED_FIFO: "SCHED_FIFO",
    os.SCHED_RR: "SCHED_RR",
}
WARM_UP = 0.2  # fraction of the messages that is put before the first round


def present(wanted: Sequence[type[System]]) -> tuple[list[System], dict[str, str]]:
    """Return the installed systems, and the missing programs of the other systems."""
    found: list[System] = []
    missing = {}
    for kind in wanted:
        lack = kind.missing()
        if lack:
            missing[kind.name] = " and ".join(lack)
            say(f"skipping {kind.name}, because it needs {missing[kind.name]}")
        else:
            found.append(kind())
    return found, missing


@contextmanager
def running(peers: Sequence[System], root: Path) -> Iterator[None]:
    try:
        for peer in peers:
            say(f"starting {peer.name}")
            directory = root / peer.name
            directory.mkdir()
            peer.start(directory)
        yield
    finally:
        for peer in peers:
            peer.stop()


def figures_of(measure: Measure, peers: Sequence[System], messages: int, rounds: int) -> Figures:
    """Run all rounds, one system after the other in each."""
    found = Figures(measure, {peer.name: [] for peer in peers})
    if measure.pause is not None:
        found.conditions.update(conditions(measure.pause))
    for number in range(rounds + 1):
        total = messages if number else int(messages * WARM_UP)
        slices: dict[str, list[float]] = {peer.name: [] for peer in peers}
        for _ in range(measure.slices):
            for peer in peers:
                values = [bytes(measure.size)] * measure.count(total, peer.share)
                gc.collect()
                figure = run(measure.of(peer, values))
                if isinstance(figure, list):
                    found.samples.setdefault(peer.name, []).extend(figure if number else [])
                    figure = median(figure)
                slices[peer.name].append(figure)
        label = f"round {number} of {rounds}" if number else "warm-up"
        figures = {name: median(each) for name, each in slices.items()}
        summary = ", ".join(f"{name} {figure:,.0f}" for name, figure in figures.items())
        say(f"{measure.title}, {label}, {measure.unit}: {summary}")
        if number:
            for name, figure in figures.items():
                found.rounds[name].append(figure)
    return found


def conditions(pause: float) -> dict[str, Any]:
    """Return the conditions that affect latency besides the system."""
    policy = POLICIES.get(os.sched_getscheduler(0), "another policy")
    return {
        "in flight": 1,
        "pause us": pause * 1e6,
        "load average": os.getloadavg()[0],
        "priority": f"{policy}, nice {os.getpriority(os.PRIO_PROCESS, 0)}",
    }


def machine(directory: Path) -> dict[str, Any]:
    models = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load average": os.getloadavg()[0],
        "fdatasync of 4 KiB, us": round(sync_time(directory) * 1e6),
    }


def sync_time(directory: Path) -> float:
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(200):
            file.write(bytes(4096))
            file.flush()
            began = perf_counter()
            os.fdatasync(file.fileno())
            times.append(perf_counter() - began)
    return median(times)


def measured(
    peers: Sequence[type[System]],
    measures: Sequence[Measure],
    arguments: argparse.Namespace,
    root: Path,
) -> dict[str, Any]:
    found, missing = present(peers)
    about, messages = machine(root), max(1, int(arguments.messages * arguments.share))
    with running(found, root):
        systems = {each.name: {"version": each.version(), "setup": each.setup} for each in found}
        all_figures = [figures_of(each, found, messages, arguments.rounds) for each in measures]
    print(", ".join(f"{key}: {value}" for key, value in about.items()))
    for name, each in systems.items():
        print(f"{name} {each['version']}: {each['setup']}")
    for name, lack in missing.items():
        print(f"{name} was skipped, because it needs {lack}")
    for line in unmeasured(measures, missing):
        print(line)
    print(table(all_figures))
    for line in latencies(all_figures):
        print(line)
    results = {each.measure.key: each.as_json() for each in all_figures}
    return {"machine": about, "systems": systems, "missing": missing, "results": results}


def unmeasured(measures: Sequence[Measure], missing: dict[str, str]) -> Iterator[str]:
    """Yield a line for each target that needs a system that was skipped."""
    for measure in measures:
        for name, target in measure.targets.items():
            if name in missing:
                yield f"target not measured: {measure.title}: {target:g} x {name}"


def compare(
    prog: str, about: str, peers: Sequence[type[System]], measures: Sequence[Measure]
) -> int:
    """Parse the command line, compare the systems and return the exit status.

    The first of `peers` must be oncecast.
    """
    parser = argparse.ArgumentParser(prog=prog, description=about.splitlines()[0])
    ours, *others = peers
    keys, names = [each.key for each in measures], [kind.name for kind in others]
    parser.add_argument(
        "--only", nargs="+", choices=keys, default=keys, help="measures to run (default: all)"
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        choices=names,
        default=names,
        help="systems to compare with oncecast (default: all)",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--messages",
        type=int,
        default=500_000,
        help="messages per round for the fastest system (default: 500,000); slower ones get fewer",
    )
    parser.add_argument(
        "--share",
        type=float,
        default=1.0,
        help="fraction of the messages to use, for a quick check (default: 1)",
    )
    parser.add_argument(
        "--directory", type=Path, help="directory for temporary files, on the disk to measure"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write all results to this file as JSON"
    )
    arguments = parser.parse_args()
    wanted = [ours, *(kind for kind in others if kind.name in arguments.peers)]
    asked = [each for each in measures if each.key in arguments.only]
    mind_signals()
    try:
        with tempfile.TemporaryDirectory(
            prefix="oncecast-bench-", dir=arguments.directory, ignore_cleanup_errors=True
        ) as root:
            found = measured(wanted, asked, arguments, Path(root))
    except Failed as failure:
        say(str(failure))
        return 1
    except KeyboardInterrupt:
        say("interrupted: all servers have been stopped and their files deleted")
        return 130
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0
