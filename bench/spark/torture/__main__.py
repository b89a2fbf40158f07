"""Torture a stream from topic to topic with real Spark and check that each result exists once.

A group of three nodes serves a query with a shuffle. Spark runs as local-cluster and as a
standalone master with two workers, with speculation. Drivers, executors and nodes are killed with
kill -9, half of them on each cluster. Then a zombie driver, a restored older checkpoint and a clone
of a checkpoint must end with a clear error. A named batch job over many topics of a ring is killed
three times while it publishes, and then completed. After each part the results are compared with
the messages.

    python -m bench.spark.torture [--drivers 20] [--executors 20] [--nodes 10] [--minutes 60]
                                  [--topics 150] [--json FILE]
                                  [--only local standalone zombie restored cloned job]

Progress goes to stderr. The exit status is 1 if a result is lost or doubled, or if a kill is
missing after --minutes. It is 2 if a query ends with another error or does not continue.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from bench.peers.peer import Failed, mind_signals, say
from bench.spark.torture.cases import CASES, Kills, killed, played
from bench.spark.torture.job import interrupted
from bench.spark.torture.pipeline import Findings, Pipeline
from bench.spark.torture.processes import Nodes, Standalone, nodes

CLUSTERS = ("local", "standalone")
NODES = 3


def parts(arguments: argparse.Namespace, root: Path) -> Iterator[dict[str, Any]]:
    if set(arguments.only) - {"job"}:
        with nodes(root, NODES) as group:
            say(f"{NODES} nodes are running")
            yield from streams(arguments, group, root)
    if "job" in arguments.only:
        yield job(arguments.topics, root)


def streams(arguments: argparse.Namespace, group: Nodes, root: Path) -> Iterator[dict[str, Any]]:
    kills = Kills(arguments.drivers, arguments.executors, arguments.nodes)
    until = time.monotonic() + 60 * arguments.minutes
    chosen = [name for name in CLUSTERS if name in arguments.only]
    for number, name in enumerate(chosen):
        due = kills if len(chosen) == 1 else kills.half(second=number > 0)
        share = time.monotonic() + (until - time.monotonic()) / (len(chosen) - number)
        yield tortured(name, due, share, group, root)
    for name in CASES:
        if name in arguments.only:
            yield case(name, group, root)


def tortured(name: str, kills: Kills, until: float, group: Nodes, root: Path) -> dict[str, Any]:
    began = time.monotonic()
    with ExitStack() as stack:
        cluster = Standalone(root) if name == "standalone" else None
        if cluster is not None:
            stack.callback(cluster.end)
        pipeline = Pipeline(name, root, group, cluster)
        stack.callback(pipeline.close)
        done = killed(pipeline, kills, until, say)
        found = pipeline.finish()
    return {
        "part": name,
        "killed": done._asdict(),
        "missing": sum(kills) - sum(done),
        "between": pipeline.between,
        "speculative": pipeline.speculated(),
        **ending(pipeline, found, began),
    }


def case(name: str, group: Nodes, root: Path) -> dict[str, Any]:
    began = time.monotonic()
    say(f"starting {name}")
    with closing(Pipeline(name, root, group)) as pipeline:
        found = played(pipeline, name)
    return {"part": name, **ending(pipeline, found, began)}


def job(topics: int, root: Path) -> dict[str, Any]:
    began = time.monotonic()
    published, found = interrupted(root / "job", topics)
    seconds = round(time.monotonic() - began)
    return {"part": "job", "published": published, **found._asdict(), "seconds": seconds}


def ending(pipeline: Pipeline, found: Findings, began: float) -> dict[str, Any]:
    ended = dict(sorted(pipeline.ended.items()))
    return {"ended": ended, **found._asdict(), "seconds": round(time.monotonic() - began)}


def show(part: dict[str, Any]) -> None:
    name, ended = part["part"], part.get("ended", {})
    print(f"{name:<12} {part['put']} messages, {part['results']} results in {part['seconds']} s")
    print(f"             {part['lost']} lost, {part['doubled']} doubled {part['examples'] or ''}")
    if "killed" in part:
        kinds = ", ".join(f"{count} {kind}" for kind, count in part["killed"].items())
        print(f"             killed {kinds}; {part['between']} between publish and commit")
        print(f"             {part['speculative']} speculative attempts")
    if "published" in part:
        print(f"             rows published by the time of each kill: {part['published']}")
    reasons = ", ".join(f"{count} x {reason}" for reason, count in ended.items())
    print(f"             queries that ended on their own: {reasons or 'none'}", flush=True)


def held(part: dict[str, Any]) -> bool:
    return not (part["lost"] or part["doubled"] or part.get("missing"))


def main() -> int:
    text, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="bench.spark.torture",
        description=text,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [*CLUSTERS, *CASES, "job"]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--drivers", type=int, default=20, help="drivers to kill (default: 20)")
    parser.add_argument("--executors", type=int, default=20, help="executors to kill (default: 20)")
    parser.add_argument("--nodes", type=int, default=10, help="nodes to kill (default: 10)")
    parser.add_argument(
        "--topics", type=int, default=150, help="topics that the batch job writes to (default: 150)"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=60.0,
        help="time limit in minutes for all kills (default: 60)",
    )
    parser.add_argument(
        "--directory",
        type=Path,
        help="keep all files in this directory (default: a temporary directory)",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the report to this file as JSON"
    )
    arguments = parser.parse_args()
    mind_signals()
    found: list[dict[str, Any]] = []
    with ExitStack() as stack:
        made = arguments.directory or stack.enter_context(tempfile.TemporaryDirectory())
        Path(made).mkdir(parents=True, exist_ok=True)
        try:
            for part in parts(arguments, Path(made)):
                show(part)
                found.append(part)
        except Failed as failure:
            say(str(failure))
            return 2
        except KeyboardInterrupt:
            say("interrupted: all processes have been stopped")
            return 130
        finally:
            if arguments.json:
                arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(map(held, found)) else 1


if __name__ == "__main__":
    sys.exit(main())
