"""Options, connection and output shared by all commands that connect to a node."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from oncecast.cli.login import add_login, login_of, tls_of
from oncecast.cli.output import as_json, on_terminal
from oncecast.errors import ExitStatus, NoQuorum, OncecastError, Overloaded, TimedOut
from oncecast.kernel.escaping import escaped

if TYPE_CHECKING:
    from oncecast.client.client import Client
    from oncecast.client.options import ClientOptions
    from oncecast.wire.commands import Start

    Work = Callable[[Client, argparse.Namespace], Awaitable[int]]

SERVER = "127.0.0.1:7400"
SUBSCRIPTION = "default"  # shared by all commands, so each continues where the last one ended
ANSWER_TIMEOUT = 30.0
STOP_WITHIN = 3.0  # seconds to wait for an answer after SIGTERM or SIGINT
PARTING = 0.5  # seconds to close the connection to a node that did not answer in time
CONNECT_TIMEOUT = 3.0  # seconds; enough for a node that has just been started

OFFSETS = 2**63
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
POSITIONS = "new, earliest, an offset, or a time such as 2030-01-31T12:00"

KEPT = "don't resend the message: the next put with this --state stores it once"
OUTCOME_UNKNOWN = "outcome unknown: check the topic before resending, or use --state"


# Options


def add_option(
    parser: argparse.ArgumentParser,
    name: str,
    unit: str | None,
    about: str,
    default: object = None,
    kind: Callable[[str], object] = str,
) -> None:
    """Add an option that takes a value. Its help ends with the default, unless that is None."""
    if default is not None:
        about += " (default: %(default)g)" if type(default) is float else " (default: %(default)s)"
    parser.add_argument(name, metavar=unit, type=kind, default=default, help=about)


def add_flag(parser: argparse.ArgumentParser, name: str, about: str) -> None:
    parser.add_argument(name, action="store_true", help=about)


def add_connection(parser: argparse.ArgumentParser, *, context: bool = True) -> None:
    """Add the options that select a node, TLS and a login."""
    parser.add_argument(
        "--server",
        metavar="HOST:PORT",
        help="address of a node, or several addresses separated by commas "
        f"(default: ONCECAST_SERVER, or {SERVER})",
    )
    if context:
        about = "saved connection to use; see `oncecast context`"
        parser.add_argument(
            "--context", metavar="NAME", help=f"{about} (default: ONCECAST_CONTEXT)"
        )
    add_option(parser, "--cluster", "NAME", "cluster name", "oncecast", unicode)
    parser.add_argument(
        "--tls",
        nargs=3,
        metavar=("CERT", "KEY", "CA"),
        help="PEM files with the client's certificate, its key and the nodes' CA; enables TLS",
    )
    parser.add_argument(
        "--tls-ca",
        metavar="FILE",
        help="PEM file with the nodes' CA; enables TLS without a client certificate",
    )
    add_login(parser)


def add_identity(parser: argparse.ArgumentParser) -> None:
    """Add the options that identify a producer."""
    parser.add_argument(
        "--name", type=unicode, help="producer name (default: assigned by the node)"
    )
    parser.add_argument(
        "--state",
        metavar="DIR",
        help="directory that keeps messages until they are stored, even if the command is killed",
    )


def add_timeout(
    parser: argparse.ArgumentParser,
    default: float = ANSWER_TIMEOUT,
    about: str = "how long to wait for an answer",
) -> None:
    about += f" (default: %(default)g{'' if default else ', do not wait'})"
    parser.add_argument("--timeout", metavar="SECONDS", type=seconds, default=default, help=about)


def add_json(parser: argparse.ArgumentParser) -> None:
    add_flag(parser, "--json", "print one JSON object per line")


def add_work(parser: argparse.ArgumentParser, work: Work, *, in_shell: bool) -> None:
    """Set the function that a command runs with a client.

    Outside a shell, also add the connection and timeout options.
    """
    add_json(parser)
    if not in_shell:
        add_connection(parser)
        if parser.get_default("timeout") is None:
            add_timeout(parser)
    parser.set_defaults(run=lambda arguments: talk(arguments, work), work=work)


def add_topic(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="topic name")


def add_subscription(parser: argparse.ArgumentParser) -> None:
    add_option(parser, "--subscription", "NAME", "subscription name", SUBSCRIPTION)


def unicode(word: str) -> str:
    """Return the word. Raise ArgumentTypeError if it is not valid UTF-8."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(
            f"{word!r} is not valid Unicode; encode it as UTF-8"
        ) from None
    return word


def called(word: str) -> str:
    """Return the name of a lock, queue, stream or election. Raise an error if it is invalid."""
    from oncecast.wire.limits import is_name

    if not is_name(unicode(word)):
        raise argparse.ArgumentTypeError(
            f"the name is {len(word.encode())} bytes long (limit 255); use 1 to 255 bytes"
        )
    return word


def seconds(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of seconds") from None
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{word} is not a time in seconds; use 0 or more")
    return value


def positive(word: str) -> int:
    try:
        value = int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is not an integer") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{word} is too small (minimum 1)")
    return value


def start(word: str) -> Start:
    """Return a start position: `new`, `earliest`, an offset, or an ISO 8601 time."""
    from oncecast.client.client import EARLIEST, NEW, from_offset, from_time

    if word in ("new", "earliest"):
        return NEW if word == "new" else EARLIEST
    if word.isdecimal() and int(word) < OFFSETS:
        return from_offset(int(word))
    try:
        return from_time(datetime.fromisoformat(word).timestamp())
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{word!r} is not a position; use {POSITIONS}") from None


def moved(asked: Start, cursor: int) -> str:
    """Return a note if the subscription is not at the requested offset, otherwise ""."""
    from oncecast.wire.commands import FromOffset

    if not isinstance(asked, FromOffset) or asked.offset == cursor:
        return ""
    why = "beyond the end" if asked.offset > cursor else "no longer kept"
    return f": offset {asked.offset} is {why}"


# Connection


def talk(arguments: argparse.Namespace, work: Work) -> int:
    """Run `work` with a connected client and return its exit status. Print errors on one line."""
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
                except (TimedOut, Overloaded) as late:  # close at once: the timeout has passed
                    with suppress(OncecastError):
                        await client.close(ack=False, timeout=PARTING)
                    raise parted(late, arguments) from None
        except TimedOut as late:
            if client.led:
                raise
            raise leaderless(late) from late

    logging.getLogger("oncecast").addHandler(logging.NullHandler())  # the error message suffices
    try:
        return run(connected())
    except OncecastError as error:
        return report_error(error)


def parted(late: OncecastError, arguments: argparse.Namespace) -> OncecastError:
    """Return a put's error with a remedy that fits a closed client, which has no puts in flight."""
    if not late.in_flight:
        return late
    kept = getattr(arguments, "state", None) is not None
    return late.reworded(remedy=KEPT if kept else OUTCOME_UNKNOWN)


def leaderless(late: OncecastError) -> NoQuorum:
    """Return the error for a call that timed out without a leader. Keep the remedy of a put."""
    return NoQuorum(remedy=f"{NoQuorum.remedy}; {late.remedy}" if late.in_flight else "")


def client_of(arguments: argparse.Namespace) -> Client:
    return named_client(arguments, getattr(arguments, "name", None))


def named_client(arguments: argparse.Namespace, name: str | None) -> Client:
    from oncecast.client.client import Client

    return Client(**options_of(arguments, name))


def client_options(arguments: argparse.Namespace, name: str | None) -> ClientOptions:
    from oncecast.client.options import ClientOptions

    return ClientOptions(**options_of(arguments, name))


def options_of(arguments: argparse.Namespace, name: str | None) -> dict[str, Any]:
    """Return the options of a client, as named arguments. Raise BadAddress for a bad --server."""
    from oncecast.cli.contexts import apply_context
    from oncecast.network.addresses import split

    apply_context(arguments)
    server = arguments.server or os.environ.get("ONCECAST_SERVER") or SERVER
    for each in server.split(","):
        split(each.strip())
    login = login_of(arguments)
    # The timeout of `get` limits the wait for messages, not the wait for an answer.
    patience = getattr(arguments, "patience", arguments.timeout)
    patience = min(patience, arguments.timeout or patience)
    return {
        "address": server,
        "cluster": arguments.cluster,
        "connect_timeout": CONNECT_TIMEOUT,
        "timeout": max(patience, 1.0),
        "name": name,
        "state": getattr(arguments, "state", None),
        "tls": tls_of(arguments),
        "user": login.user,
        "password": login.password,
        "token": login.token,
    }


# Output


def report_error(error: OncecastError) -> int:
    """Print the error with its command-line remedy, and return its exit status."""
    return complain(error.in_cli(), error.exit_status)


def counted(count: int, singular: str, plural: str = "") -> str:
    """Return the count with its noun, as in "1 message" or "2 messages"."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def is_of_output(error: OSError) -> bool:
    """Return whether the error comes from writing the output."""
    return isinstance(error, BrokenPipeError) or (error.errno in FULL and error.filename is None)


def complain(what: object, status: int = ExitStatus.FAILURE) -> int:
    """Print an error on one line and return the exit status.

    The text is always escaped, because parts of it may come from a server.
    """
    print(f"oncecast: {escaped(str(what))}", file=sys.stderr, flush=True)
    return status


def show(arguments: argparse.Namespace, fields: dict[str, Any], text: str | None) -> None:
    """Print one result: `fields` with --json, otherwise `text` unless it is None."""
    if arguments.json:
        print(as_json(fields))
    elif text is not None:
        print(on_terminal(text))


def table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    """Print a table with text left-aligned and numbers right-aligned."""
    cells = [head, *(tuple(escaped(str(cell)) for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    left = [isinstance(each, str) for each in rows[0]] if rows else [True] * len(head)
    for row in cells:
        line = (
            cell.ljust(width) if plain else cell.rjust(width)
            for cell, width, plain in zip(row, widths, left, strict=True)
        )
        print("  ".join(line).rstrip())
