"""Measure memory, put rate, disk, start time, and the effect of a stalled subscriber.

backlog       put 10 million messages of 100 B for a slow subscriber; measure the node's memory, its
              put rate in turns with an empty node, and the disk space freed after reading them
single        the same with 2 million messages, each in its own batch
many          create 10,000 topics with a subscription each; measure the start time and memory
stall         measure how long 99 subscribers take, with and without one more that is stopped

    python -m bench.cost [--only backlog] [--scale 1.0] [--json FILE] [--directory DIR]

A scale of 0.1 runs a tenth of the work. Figures go to stdout, progress to stderr.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from bench.cost.backlog import backlog, put_bulk, put_single
from bench.cost.many import many
from bench.cost.node import Figure, Found
from bench.cost.stall import stall
from bench.peers.peer import Failed, mind_signals, say

BACKLOG, SINGLE, TOPICS, STALL = 10_000_000, 2_000_000, 10_000, 20_000
FREE_BYTES = 8_000_000_000


def parts(scale: float, root: Path) -> dict[str, Callable[[], Found]]:
    return {
        "backlog": lambda: backlog("backlog", put_bulk, int(BACKLOG * scale), root),
        "single": lambda: backlog("single", put_single, int(SINGLE * scale), root),
        "many": lambda: many(int(TOPICS * scale), root),
        "stall": lambda: stall(int(STALL * scale), root),
    }


def show(each: Figure) -> None:
    value = f"{each.value:,.0f}" if each.value >= 100 else f"{each.value:,.2f}"
    verdict = {None: "", True: "ok", False: "SHORT"}[each.ok]
    print(f"{each.what:<70} {value:>12} {each.unit:<12} {each.target:<8} {verdict}", flush=True)


def measure(arguments: argparse.Namespace, root: Path, found: list[Figure]) -> None:
    needed = FREE_BYTES * arguments.scale
    if shutil.disk_usage(root).free < needed:
        raise Failed(f"{root}: less than {needed / 1e9:.0f} GB are free; use another --directory")
    for name, part in parts(arguments.scale, root).items():
        if name in arguments.only:
            for each in part():
                show(each)
                found.append(each)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.cost", description=(__doc__ or "").splitlines()[0])
    names = list(parts(1.0, Path()))
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="multiply all sizes by this factor"
    )
    parser.add_argument(
        "--directory", type=Path, help="directory for temporary files, on the disk to measure"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write all results to this file as JSON"
    )
    arguments = parser.parse_args()
    mind_signals()
    found: list[Figure] = []
    try:
        with tempfile.TemporaryDirectory(prefix="oncecast-cost-", dir=arguments.directory) as root:
            measure(arguments, Path(root), found)
    except Failed as failure:
        say(str(failure))
        return 1
    except KeyboardInterrupt:
        say("interrupted: all nodes have been stopped and their files deleted")
        return 130
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(each) for each in found], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
