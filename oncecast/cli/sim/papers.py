"""`oncecast sim papers`: reproduce experiments from papers and compare the results."""

from __future__ import annotations

import argparse
import sys
from time import perf_counter
from typing import TYPE_CHECKING

from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from oncecast.lab.papers.tables import Table


def names(text: str) -> list[str]:
    from oncecast.lab.papers.catalogue import PAPERS

    chosen = text.split(",")
    for name in chosen:
        if name not in PAPERS:
            known = ", ".join(PAPERS)
            raise argparse.ArgumentTypeError(f"paper {name!r} does not exist; choose from {known}")
    return chosen


def repeat(args: argparse.Namespace) -> int:
    """Print the tables of the chosen papers. Return exit status 0 if all checks pass."""
    from oncecast.lab.papers.catalogue import PAPERS
    from oncecast.lab.papers.tables import Experiment

    broken = 0
    for name in args.only or PAPERS:
        began = perf_counter()
        for table in PAPERS[name](Experiment(args.nodes, args.seed, say)):
            now = perf_counter()
            show(args, name, table, now - began)
            began = now
            broken += sum(not must.holds for must in table.must)
    return ExitStatus.FAILURE if broken else ExitStatus.OK


def say(text: str) -> None:
    print(f"oncecast: {text}", file=sys.stderr, flush=True)


def show(args: argparse.Namespace, paper: str, table: Table, seconds: float) -> None:
    if args.json:
        import msgspec

        fields = msgspec.to_builtins(table)
        line = {"paper": paper, "seed": args.seed, "seconds": round(seconds, 1), **fields}
        print(msgspec.json.encode(line).decode(), flush=True)
        return
    from oncecast.lab.papers.tables import lines

    print(f"## {paper}: {table.title}\n\nSimulated, seed {args.seed}, {seconds:.0f} s.\n")
    print(*lines(table), sep="\n", end="\n\n", flush=True)
