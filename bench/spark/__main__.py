"""Measure topics in Spark, compared with Parquet files and with rows.

read     read 5 million messages of 100 random bytes from a running node and drop them
json     the same with JSON messages of about 93 bytes
few      read a hundredth of the offsets, compared with all offsets
count    count the messages
stream   read random bytes in micro-batches of 500,000 messages
small    read micro-batches of 100 messages, compared with Spark's rate source
write    write JSON messages from Parquet files to a topic
audit    audit a trace of 10 million lines with three faults, with one executor of 2 GB

    python -m bench.spark [--only read] [--rounds 5] [--scale 1.0] [--json FILE] [--directory DIR]

A scale of 0.1 runs a tenth of the work. Figures go to stdout, progress to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from pyspark.errors import PySparkException

from bench.cost.__main__ import show
from bench.cost.node import Figure, node
from bench.peers.peer import Failed, mind_signals, say
from bench.spark.auditing import audit
from bench.spark.measures import PARTS, QUIET, Bench
from oncecast.errors import NoSpark
from oncecast.spark.session import spark

MESSAGES, LINES = 5_000_000, 10_000_000


def measured(arguments: argparse.Namespace, root: Path) -> Iterator[Figure]:
    parts = [part for part in PARTS if part.__name__ in arguments.only]
    if parts:
        settings = {**QUIET, "spark.sql.warehouse.dir": str(root / "spark")}
        session = spark("local[2]", app="bench", light=False, **settings)
        try:
            with node(root, "node") as running:
                messages = int(MESSAGES * arguments.scale)
                bench = Bench(session, running.address, root, messages, arguments.rounds)
                for part in parts:
                    yield from part(bench)
        finally:
            session.stop()
    if "audit" in arguments.only:
        yield from audit(int(LINES * arguments.scale), root)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bench.spark", description=(__doc__ or "").splitlines()[0]
    )
    names = [*(part.__name__ for part in PARTS), "audit"]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--rounds", type=int, default=5)
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
        with tempfile.TemporaryDirectory(prefix="oncecast-spark-", dir=arguments.directory) as root:
            for each in measured(arguments, Path(root)):
                show(each)
                found.append(each)
    except (Failed, NoSpark, PySparkException) as failure:
        say(str(failure))
        return 1
    except KeyboardInterrupt:
        say("interrupted: the node and Spark have been stopped and their files deleted")
        return 130
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(each) for each in found], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
