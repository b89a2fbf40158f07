"""`oncecast load`: the automated client. Random operations, measured, traced and audited.

Producers put in topics of their own choice. Subscribers get one or many, ask for messages again,
leave without an ack and come back, unsubscribe and subscribe anew. All of it follows from the seed,
but for the timing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from oncecast.cli.connecting import (
    add_connection,
    add_json,
    add_timeout,
    complain,
    positive,
    talk,
)


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    load = commands.add_parser("load", help="the automated client", description=__doc__)
    load.add_argument("--publishes", metavar="N", type=positive, default=10_000)
    load.add_argument("--producers", metavar="N", type=positive, default=2)
    load.add_argument("--topics", metavar="N", type=positive, default=2)
    load.add_argument("--subscribers", metavar="N", type=positive, default=2, help="of each topic")
    load.add_argument("--size", metavar="BYTES", type=positive, default=100, help="of a message")
    load.add_argument(
        "--rate", metavar="R", type=rate, default=0.0, help="puts a second; 0: no limit"
    )
    load.add_argument("--seed", type=int, default=0)
    load.add_argument(
        "--push", action="store_true", help="on a ring: get by way of the process talked to"
    )
    load.add_argument("--trace", metavar="FILE", help="JSON lines: every put, ack and delivery")
    load.add_argument("--keep", action="store_true", help="do not delete the topics at the end")
    add_timeout(load, about="seconds without progress after which it gives up")
    add_connection(load)
    add_json(load)
    load.set_defaults(run=run)


def rate(word: str) -> float:
    value = float(word)
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{word}: no rate; give puts a second, or 0 for no limit")
    return value


def run(arguments: argparse.Namespace) -> int:
    from oncecast.cli.load.loader import Load

    if arguments.trace is None:
        return talk(arguments, lambda client, _: Load(arguments, None).run(client))
    try:
        with Path(arguments.trace).open("w") as trace:
            return talk(arguments, lambda client, _: Load(arguments, trace).run(client))
    except OSError as error:
        if error.filename is None:  # it could be opened
            raise
        return complain(f"{error.filename}: {error.strerror}; name a file that can be written")
