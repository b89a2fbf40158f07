"""`oncecast load`: run automated clients that measure, trace and audit random operations.

Producers put messages in random topics. Subscribers read one or many messages, request some of them
again, disconnect without an ack, unsubscribe and subscribe again. The seed determines everything
except the timing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from oncecast.cli.connecting import (
    add_connection,
    add_flag,
    add_json,
    add_option,
    add_timeout,
    complain,
    positive,
    talk,
)


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    load = commands.add_parser(
        "load", help="run automated clients and audit them", description=__doc__
    )
    for option, unit, default, about in (
        ("--publishes", "N", 10_000, "number of messages to put"),
        ("--producers", "N", 2, "number of clients that put"),
        ("--topics", "N", 2, "number of topics to create"),
        ("--subscribers", "N", 2, "number of subscribers per topic"),
        ("--size", "BYTES", 100, "message size"),
    ):
        add_option(load, option, unit, about, default, positive)
    load.add_argument(
        "--rate",
        metavar="R",
        type=rate,
        default=0.0,
        help="total puts per second, or 0 for no limit (default: 0)",
    )
    add_option(load, "--seed", None, "seed for the random operations", 0, int)
    add_flag(load, "--push", "on a ring, receive messages through the connected process")
    add_option(load, "--trace", "FILE", "write a JSON line for each put, ack and delivery")
    load.add_argument("--keep", action="store_true", help="do not delete the topics at the end")
    add_timeout(load, about="give up after this long without progress")
    add_connection(load)
    add_json(load)
    load.set_defaults(run=run)


def rate(word: str) -> float:
    value = float(word)
    if not value >= 0:
        raise argparse.ArgumentTypeError(
            f"{word} is not a rate; use a number of puts per second, or 0 for no limit"
        )
    return value


def run(arguments: argparse.Namespace) -> int:
    from oncecast.cli.load.loader import Load

    if arguments.trace is None:
        return talk(arguments, lambda client, _: Load(arguments, None).run(client))
    try:
        with Path(arguments.trace).open("w") as trace:
            return talk(arguments, lambda client, _: Load(arguments, trace).run(client))
    except OSError as error:
        if error.filename is None:  # not an error from opening the file
            raise
        return complain(f"{error.filename}: {error.strerror}; use a writable file")
