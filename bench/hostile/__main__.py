"""Attack running nodes, and measure how well they serve honest clients during the attack.

barrage    send mutated frames of recorded sessions and well-typed extreme frames, as client and as
           peer, with and without credentials; after each block, check that the same processes run,
           use less than 200 MB of additional memory, and serve an honest client
storm      measure the latency of an honest client, with and without thousands of hostile
           connections: incomplete handshakes, slow senders, floods, clients that do not read,
           guessed passwords
toll       compare put, get and latency of a node with TLS, users and rules with an open node

    python -m bench.hostile [--frames 2000000] [--extreme 500000] [--connections 5000]
                            [--only storm] [--share 0.01] [--json FILE]

All nodes and attackers are processes on this machine and use loopback addresses only. They are
stopped at the end. The exit status is 1 if a node failed, or an honest client was not served well.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.hostile.barrage import ENDINGS, Outcome, barrage
from bench.hostile.storm import ROUNDS as STORM_ROUNDS
from bench.hostile.storm import Phase, Storm, open_files, storms
from bench.hostile.toll import ROUNDS as TOLL_ROUNDS
from bench.hostile.toll import Toll, toll
from bench.peers.peer import Failed, mind_signals, say
from oncecast.errors import OncecastError

PARTS = ("barrage", "storm", "toll")
FRAMES, EXTREME, CONNECTIONS = 2_000_000, 500_000, 5_000
SAMPLES = 2_000  # number of samples per phase
MESSAGES = 500_000  # number of messages per round
FEWEST = 20  # minimum number of samples, if --share is small


@dataclass
class Report:
    figures: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def run(arguments: argparse.Namespace, root: Path, report: Report) -> None:
    share = arguments.share
    samples = max(FEWEST, int(SAMPLES * share))
    if "barrage" in arguments.only:
        frames, extreme = int(arguments.frames * share), int(arguments.extreme * share)
        print(f"{'':<57}" + "".join(f"{name:>10}" for name in ENDINGS) + f"{'MB':>8}")
        for outcome in barrage(frames, extreme, root, arguments.seed):
            show_outcome(outcome)
            report.figures.setdefault("barrage", []).append(asdict(outcome))
            report.faults += outcome.faults
    if "storm" in arguments.only:
        connections = max(1, int(arguments.connections * share))
        rounds = STORM_ROUNDS if share >= 0.1 else 1
        for each in storms(connections, samples, root, rounds):
            show_storm(each)
            report.figures.setdefault("storm", []).append(figures_of(each))
            report.faults += each.faults
    if "toll" in arguments.only:
        rounds = TOLL_ROUNDS if share >= 0.1 else 1
        found = toll(max(1000, int(MESSAGES * share)), samples, root, rounds)
        show_toll(found)
        report.figures["toll"] = asdict(found)
        report.faults += found.faults


def show_outcome(each: Outcome) -> None:
    counts = "".join(f"{each.endings[name]:>10,}" for name in ENDINGS)
    print(f"{each.target:<15}{each.kind:<9}{each.way:<33}{counts}{each.grown_mb:>8.1f}", flush=True)


def show_storm(each: Storm) -> None:
    print(
        f"{each.target}: {each.connections:,} hostile connections, {each.attacked.hostile:,} open"
    )
    for name, phase in (("quiet", each.quiet), ("attacked", each.attacked)):
        print(
            f"  {name:<10} put to get p50 {phase.quantile(50) * 1e3:8.2f} ms   "
            f"p99 {phase.quantile(99) * 1e3:8.2f} ms   "
            f"new client {median(phase.connects):6.2f} s   "
            f"locked out {phase.locked_out} of {len(phase.connects)}"
        )
    rounds = f"{min(each.ratios):.2f} to {max(each.ratios):.2f}"
    print(f"  ratio of the p99: {each.ratio:.2f} (rounds {rounds})", flush=True)


def figures_of(each: Storm) -> dict[str, Any]:
    def phase(found: Phase) -> dict[str, Any]:
        return {
            "samples": len(found.times),
            "p50": found.quantile(50),
            "p99": found.quantile(99),
            "connects": found.connects,
            "locked_out": found.locked_out,
            "hostile": found.hostile,
        }

    facts = asdict(each) | {"quiet": phase(each.quiet), "attacked": phase(each.attacked)}
    return facts | {"ratio": each.ratio}


def show_toll(found: Toll) -> None:
    for name, ratios in (("put", found.put), ("get", found.get), ("latency", found.latency)):
        print(
            f"{name:<10} with TLS, users and rules: "
            f"{median(ratios):.2f} of the result without them "
            f"({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.hostile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run (default: all)")
    add(
        "--frames",
        type=int,
        default=FRAMES,
        help="number of mutated frames to send (default: %(default)s)",
    )
    add(
        "--extreme",
        type=int,
        default=EXTREME,
        help="number of extreme frames to send (default: %(default)s)",
    )
    add(
        "--connections",
        type=int,
        default=CONNECTIONS,
        help="number of hostile connections to open (default: %(default)s)",
    )
    add(
        "--share", type=float, default=1.0, help="multiply all counts by this fraction (default: 1)"
    )
    add("--seed", type=int, default=1, help="seed for generating frames (default: 1)")
    add("--json", type=Path, metavar="FILE", help="write all results to this file as JSON")
    arguments = parser.parse_args(words)
    if not 0 < arguments.share <= 1:
        parser.error(f"--share is {arguments.share:g}; use a number above 0 and up to 1")
    return arguments


def main(words: list[str] | None = None) -> int:
    arguments, report = parse(words), Report()
    mind_signals()
    if "storm" in arguments.only and open_files() < 2 * arguments.connections * arguments.share:
        say("the open file limit is too low; raise it with ulimit -n as root")
        return 2
    try:
        with tempfile.TemporaryDirectory(prefix="oncecast-hostile-") as root:
            run(arguments, Path(root), report)
    except (Failed, OncecastError) as failure:
        report.faults.append(f"the run failed: {failure}")
    except KeyboardInterrupt:
        say("interrupted: all processes have been stopped and their files deleted")
        return 130
    if arguments.json:
        found = {**report.figures, "faults": report.faults}
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    for fault in report.faults:
        print(f"FAULT {fault}")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
