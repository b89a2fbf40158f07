"""What all commands that talk to a node share: their options, the connection, and complaints."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from oncecast.cli import exits

if TYPE_CHECKING:
    from oncecast.client.client import Client
    from oncecast.client.errors import OncecastError
    from oncecast.pubsub.commands import Start

    Work = Callable[[Client, argparse.Namespace], Awaitable[int]]

SERVER = "127.0.0.1:7400"
SUBSCRIPTION = "default"  # the same from call to call: each goes on where the last one stopped
ANSWER_TIMEOUT = 30.0
CONNECT_TIMEOUT = 3.0  # a node that was started a moment ago is waited for

NO_NODE = "start one with `oncecast serve`, or name another with --server or ONCECAST_SERVER"

REMEDIES = {
    "no-such-topic": "`oncecast topic create` or `oncecast sub` makes it",
    "not-subscribed": "`oncecast sub` makes it",
    "topic-exists": "`oncecast topic set` changes it",
}

STATUS = {
    "invalid-topic": exits.USAGE,
    "invalid-name": exits.USAGE,
    "invalid-argument": exits.USAGE,
    "too-large": exits.USAGE,
    "out-of-range": exits.USAGE,
    "no-such-topic": exits.NOT_FOUND,
    "not-subscribed": exits.NOT_FOUND,
    "timed-out": exits.EMPTY,
    "fenced": exits.NOT_ALLOWED,
    "name-in-use": exits.NOT_ALLOWED,
}


# Options.


def add_options(
    parser: argparse.ArgumentParser,
    *,
    timeout: float = ANSWER_TIMEOUT,
    about_timeout: str = "seconds that the node has for an answer",
) -> None:
    parser.add_argument(
        "--server", metavar="HOST:PORT", help=f"the node (ONCECAST_SERVER, or {SERVER})"
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=seconds,
        default=timeout,
        help=f"{about_timeout} (%(default)g)",
    )
    parser.add_argument("--cluster", default="oncecast", help="the node's (%(default)s)")
    parser.add_argument(
        "--tls", nargs=3, metavar=("CERT", "KEY", "CA"), help="PEM files; then TLS is used"
    )
    parser.add_argument("--json", action="store_true", help="JSON, an object a line")


def add_subscription(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--subscription", metavar="NAME", default=SUBSCRIPTION, help="which one (%(default)s)"
    )


def seconds(text: str) -> float:
    value = float(text)
    if not value >= 0:
        raise ValueError(f"{text}: no time to wait")
    return value


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(f"{text} is less than 1")
    return value


def start(text: str) -> Start:
    """Where a subscription begins: `new`, `earliest`, an offset, or a time of ISO 8601."""
    from oncecast.client.client import EARLIEST, NEW, from_offset, from_time

    if text in ("new", "earliest"):
        return NEW if text == "new" else EARLIEST
    if text.isdecimal():
        return from_offset(int(text))
    return from_time(datetime.fromisoformat(text).timestamp())


# The connection.


def talk(arguments: argparse.Namespace, work: Work, **options: Any) -> int:
    """Run `work` with a client; what goes wrong is complained about in one line."""
    from oncecast.client.errors import OncecastError
    from oncecast.runtime.errors import BadAddress, NetworkError
    from oncecast.runtime.network import run

    async def connected() -> int:
        async with client_of(arguments, **options) as client:
            return await work(client, arguments)

    try:
        return run(connected())
    except OncecastError as error:
        return complain(remedied(error), STATUS.get(error.code, exits.FAILURE))
    except (BadAddress, NetworkError) as error:  # an option: the address, the TLS files
        return complain(error, exits.USAGE)


def client_of(arguments: argparse.Namespace, **options: Any) -> Client:
    from oncecast.client.client import Client
    from oncecast.runtime.addresses import split
    from oncecast.runtime.tls import Tls

    server = arguments.server or os.environ.get("ONCECAST_SERVER") or SERVER
    split(server)
    options.setdefault("timeout", max(arguments.timeout, 1.0))
    if arguments.tls:
        certificate, key, ca = arguments.tls
        options["tls"] = Tls.from_files(certificate=certificate, key=key, ca=ca)
    return Client(
        server,
        cluster=arguments.cluster,
        connect_timeout=CONNECT_TIMEOUT,
        **options,
    )


# What people and scripts are told.


def remedied(error: OncecastError) -> str:
    """Its text, with a remedy in words of the command line."""
    text = str(error)
    fact = text.removesuffix(f"; {error.remedy}")
    if error.code == "not-connected" and ("[Errno" in fact or "no answer" in fact):
        return f"{fact}; {NO_NODE}"
    return f"{fact}; {REMEDIES[error.code]}" if error.code in REMEDIES else text


def complain(what: object, status: int = exits.FAILURE) -> int:
    print(f"oncecast: {what}", file=sys.stderr)
    return status


def show(arguments: argparse.Namespace, fields: dict[str, Any], text: str | None) -> None:
    """One result: `fields` as JSON, or `text`; None if people need not be told."""
    import msgspec

    if arguments.json:
        print(msgspec.json.encode(fields).decode())
    elif text is not None:
        print(text)


def table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    """Names to the left, numbers to the right; as wide as needed."""
    cells = [head, *(tuple(map(str, row)) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    left = [isinstance(each, str) for each in rows[0]] if rows else [True] * len(head)
    for row in cells:
        line = (
            cell.ljust(width) if plain else cell.rjust(width)
            for cell, width, plain in zip(row, widths, left, strict=True)
        )
        print("  ".join(line).rstrip())
