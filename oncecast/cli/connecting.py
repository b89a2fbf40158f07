"""What all commands that talk to a node share: their options, the connection, and complaints."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from oncecast.errors import ExitStatus, NoQuorum, OncecastError, Overloaded, TimedOut

if TYPE_CHECKING:
    from oncecast.client.client import Client
    from oncecast.wire.commands import Start

    Work = Callable[[Client, argparse.Namespace], Awaitable[int]]

SERVER = "127.0.0.1:7400"
SUBSCRIPTION = "default"  # the same from call to call: each goes on where the last one stopped
ANSWER_TIMEOUT = 30.0
STOP_WITHIN = 3.0  # seconds for each answer of the node, after SIGTERM or SIGINT
PARTING = 0.5  # seconds to say goodbye to whoever has not answered in time
CONNECT_TIMEOUT = 3.0  # a node that was started a moment ago is waited for

OFFSETS = 2**63
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
PLACES = "new, earliest, an offset, or a time as 2030-01-31T12:00"

KEPT = "don't resend it: the next put with this --state stores it once"
OUTCOME_UNKNOWN = "outcome unknown: check the topic before resending, or use --state"


# Options.


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Which node, and how to reach it."""
    parser.add_argument(
        "--server",
        metavar="HOST:PORT",
        help=f"the node, or several with commas (ONCECAST_SERVER, or {SERVER})",
    )
    parser.add_argument(
        "--cluster", type=unicode, default="oncecast", help="the node's (%(default)s)"
    )
    parser.add_argument(
        "--tls", nargs=3, metavar=("CERT", "KEY", "CA"), help="PEM files; then TLS is used"
    )


def add_identity(parser: argparse.ArgumentParser) -> None:
    """Who puts."""
    parser.add_argument(
        "--name", type=unicode, help="of the producer; the node gives one if left out"
    )
    parser.add_argument("--state", metavar="DIR", help="keep what is not stored yet, for the next")


def add_timeout(
    parser: argparse.ArgumentParser,
    default: float = ANSWER_TIMEOUT,
    about: str = "seconds that the node has for an answer",
) -> None:
    parser.add_argument(
        "--timeout", metavar="S", type=seconds, default=default, help=f"{about} (%(default)g)"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="JSON, an object a line")


def add_work(parser: argparse.ArgumentParser, work: Work, *, in_shell: bool) -> None:
    """What the command does with a client; a shell has one already, and how long it waits."""
    add_json(parser)
    if not in_shell:
        add_connection(parser)
        if parser.get_default("timeout") is None:
            add_timeout(parser)
    parser.set_defaults(run=lambda arguments: talk(arguments, work), work=work)


def add_subscription(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--subscription", metavar="NAME", default=SUBSCRIPTION, help="which one (%(default)s)"
    )


def unicode(word: str) -> str:
    """Not what bytes that are no UTF-8 become on a command line."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(
            f"{word!r} is not valid Unicode; write it in UTF-8"
        ) from None
    return word


def called(word: str) -> str:
    """Of a lock, a queue, a stream or an election."""
    from oncecast.wire.limits import is_name

    if not is_name(unicode(word)):
        raise argparse.ArgumentTypeError("a name has 1 to 255 bytes in UTF-8; choose another one")
    return word


def seconds(word: str) -> float:
    value = float(word)
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{word}: no time to wait; 0 is the shortest")
    return value


def positive(word: str) -> int:
    try:
        value = int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is not an integer") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{word} is less than 1")
    return value


def start(word: str) -> Start:
    """Where a subscription begins: `new`, `earliest`, an offset, or a time of ISO 8601."""
    from oncecast.client.client import EARLIEST, NEW, from_offset, from_time

    if word in ("new", "earliest"):
        return NEW if word == "new" else EARLIEST
    if word.isdecimal() and int(word) < OFFSETS:
        return from_offset(int(word))
    try:
        return from_time(datetime.fromisoformat(word).timestamp())
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{word!r} is no place; write {PLACES}") from None


def moved(asked: Start, cursor: int) -> str:
    """What to say if a subscription is not at the offset that was asked for."""
    from oncecast.wire.commands import FromOffset

    if not isinstance(asked, FromOffset) or asked.offset == cursor:
        return ""
    why = "beyond the end" if asked.offset > cursor else "no longer kept"
    return f": offset {asked.offset} is {why}"


# The connection.


def talk(arguments: argparse.Namespace, work: Work) -> int:
    """Run `work` with a client; what goes wrong is complained about in one line."""
    import logging

    from oncecast.cli.signals import ended_by_signals
    from oncecast.network.network import run

    async def connected() -> int:
        client = client_of(arguments)
        return await ended_by_signals(use(client), caught=lambda: client.hurry(STOP_WITHIN))

    async def use(client: Client) -> int:
        try:
            async with client:
                try:
                    return await work(client, arguments)
                except (TimedOut, Overloaded) as late:  # it has waited for as long as it should
                    with suppress(OncecastError):
                        await client.close(ack=False, timeout=PARTING)
                    raise parted(late, arguments) from None
        except TimedOut as late:
            if client.led:
                raise
            raise leaderless(late) from late

    logging.getLogger("oncecast").addHandler(logging.NullHandler())  # the complaint says it all
    try:
        return run(connected())
    except OncecastError as error:
        return told(error)


def parted(late: OncecastError, arguments: argparse.Namespace) -> OncecastError:
    """Return the error for a client that has left: none of its messages is in flight any more."""
    if not late.in_flight:
        return late
    kept = getattr(arguments, "state", None) is not None
    return late.reworded(remedy=KEPT if kept else OUTCOME_UNKNOWN)


def leaderless(late: OncecastError) -> NoQuorum:
    """Return the error of a call that timed out without a leader; that of a put has its outcome."""
    return NoQuorum(remedy=f"{NoQuorum.remedy}; {late.remedy}" if late.in_flight else "")


def client_of(arguments: argparse.Namespace) -> Client:
    return named_client(arguments, getattr(arguments, "name", None))


def named_client(arguments: argparse.Namespace, name: str | None) -> Client:
    from oncecast.client.client import Client
    from oncecast.network.addresses import split
    from oncecast.network.tls import Tls

    server = arguments.server or os.environ.get("ONCECAST_SERVER") or SERVER
    for each in server.split(","):
        split(each.strip())
    tls = None
    if arguments.tls:
        certificate, key, ca = arguments.tls
        tls = Tls.from_files(certificate=certificate, key=key, ca=ca)
    # To wait long for messages, or not at all, says nothing of how long an answer may take.
    patience = getattr(arguments, "patience", arguments.timeout)
    patience = min(patience, arguments.timeout or patience)
    return Client(
        server,
        cluster=arguments.cluster,
        connect_timeout=CONNECT_TIMEOUT,
        timeout=max(patience, 1.0),
        name=name,
        state=getattr(arguments, "state", None),
        tls=tls,
    )


# What people and scripts are told.


def told(error: OncecastError) -> int:
    """Print the error, with its remedy for the command line, and return its exit status."""
    return complain(error.in_cli(), error.exit_status)


def is_of_output(error: OSError) -> bool:
    """Whether nothing else failed than to write what was to be told."""
    return isinstance(error, BrokenPipeError) or (error.errno in FULL and error.filename is None)


def complain(what: object, status: int = ExitStatus.FAILURE) -> int:
    print(f"oncecast: {what}", file=sys.stderr, flush=True)
    return status


def show(arguments: argparse.Namespace, fields: dict[str, Any], text: str | None) -> None:
    """One result: `fields` as JSON, or `text`; None if people need not be told."""
    import msgspec

    if arguments.json:
        print(msgspec.json.encode(fields).decode())
    elif text is not None:
        print(text)


def spelled(text: str) -> str:
    """For the screen: what could be a command to a terminal is spelled out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    """Names to the left, numbers to the right; as wide as needed."""
    cells = [head, *(tuple(spelled(str(cell)) for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    left = [isinstance(each, str) for each in rows[0]] if rows else [True] * len(head)
    for row in cells:
        line = (
            cell.ljust(width) if plain else cell.rjust(width)
            for cell, width, plain in zip(row, widths, left, strict=True)
        )
        print("  ".join(line).rstrip())
