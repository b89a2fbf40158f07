"""`oncecast put`."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from oncecast.cli.connecting import (
    add_flag,
    add_identity,
    add_topic,
    add_work,
    complain,
    show,
    unicode,
)
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from oncecast.client.client import Client

READ = 256 * 1024  # maximum bytes per read from standard input
TOGETHER = 1000  # maximum number of puts at a time


def configure(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], *, in_shell: bool = False
) -> None:
    put = commands.add_parser("put", help="put messages", description="Put messages in a topic.")
    add_topic(put)
    lines = "message to put"
    if not in_shell:
        lines += "; a single - reads messages from the lines of standard input"
    put.add_argument("values", metavar="VALUE", nargs="+", help=lines)
    if not in_shell:
        add_flag(put, "--files", "put the whole content of each file VALUE as one message")
    keys = put.add_mutually_exclusive_group()
    keys.add_argument("-k", "--key", type=os.fsencode, help="key of each message")
    about = "take the key of each message from the text before the first SEPARATOR in it"
    keys.add_argument("--key-separator", metavar="SEPARATOR", type=separator, help=about)
    put.add_argument(
        "--header",
        metavar="NAME=VALUE",
        type=header,
        action="append",
        default=[],
        dest="headers",
        help="header of each message; may be repeated",
    )
    add_timing(put)
    if not in_shell:
        add_identity(put)
    put.set_defaults(lines=not in_shell)
    add_work(put, run_put, in_shell=in_shell)


def separator(word: str) -> bytes:
    if not word:
        raise argparse.ArgumentTypeError("the separator is empty; use one or more characters")
    return os.fsencode(word)


def header(word: str) -> tuple[str, bytes]:
    name, equals, value = word.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{word!r} is not a header; use NAME=VALUE")
    return unicode(name), os.fsencode(value)


def add_timing(put: argparse.ArgumentParser) -> None:
    when = put.add_mutually_exclusive_group()
    about = "how long to delay each message before readers see it, for example 90s, 12h or 7d"
    when.add_argument("--delay", metavar="TIME", type=duration, help=about)
    about = (
        "time at which readers see each message, "
        "for example 2030-01-31T12:00 (local time) or ...Z (UTC)"
    )
    when.add_argument("--at", metavar="WHEN", type=moment, help=about)
    about = "how long each message can be delivered to workers, for example 90s, 12h or 7d"
    put.add_argument("--ttl", metavar="TIME", type=duration, help=about)


def duration(word: str) -> float:
    from oncecast.cli.messages.topics import age

    return age(word) / 1e6


def moment(word: str) -> float:
    from datetime import datetime

    try:
        return datetime.fromisoformat(word).timestamp()
    except (ValueError, OverflowError):
        example = "use a time such as 2030-01-31T12:00"
        raise argparse.ArgumentTypeError(f"{word!r} is not a time; {example}") from None


async def run_put(client: Client, arguments: argparse.Namespace) -> int:
    kept = True
    async for values in to_put(arguments):
        for at in range(0, len(values), TOGETHER):
            kept &= await _put(client, arguments, values[at : at + TOGETHER])
        sys.stdout.flush()
    if not kept:
        lost = "will be discarded when they are due" if is_delayed(arguments) else "were discarded"
        complain(
            f"topic {arguments.topic!r} has no subscriptions and no retention; the messages "
            f"{lost}: run `oncecast sub` first, or `oncecast topic create --keep-all`",
        )
    return ExitStatus.OK


async def _put(client: Client, arguments: argparse.Namespace, values: list[bytes]) -> bool:
    import asyncio

    topic, headers = arguments.topic, dict(arguments.headers) or None
    times = {"delay": arguments.delay, "at": arguments.at, "ttl": arguments.ttl}
    facts = (headers, arguments.timeout)
    messages = [keyed(arguments, value) for value in values]
    puts = [client.put(topic, value, key, *facts, **times) for key, value in messages]
    receipts = await asyncio.gather(*puts)
    for receipt in receipts:
        offset, kept = receipt
        fields = {"topic": topic, "offset": offset, "kept": kept, "producer": client.name}
        text = "delayed" if is_delayed(arguments) and offset < 0 else str(offset)
        if receipt.partition >= 0:
            fields["partition"] = receipt.partition
            text = f"{receipt.partition}:{text}"
        show(arguments, fields, text)
    return all(kept is not False for _, kept in receipts)


def keyed(arguments: argparse.Namespace, line: bytes) -> tuple[bytes | None, bytes]:
    """Return the key and the value of a message."""
    if arguments.key_separator is None:
        return arguments.key, line
    key, found, value = line.partition(arguments.key_separator)
    if not found:
        from oncecast.errors import InvalidArgument

        shown = line[:40].decode(errors="backslashreplace")
        wanted = arguments.key_separator.decode(errors="backslashreplace")
        raise InvalidArgument(f"{shown!r} has no key", f"write KEY{wanted}VALUE")
    return key, value


def is_delayed(arguments: argparse.Namespace) -> bool:
    return arguments.delay is not None or arguments.at is not None


async def to_put(arguments: argparse.Namespace) -> AsyncIterator[list[bytes]]:
    if getattr(arguments, "files", False):
        for path in arguments.values:
            yield [read_whole(path)]
        return
    if arguments.values != ["-"] or not arguments.lines:
        yield list(map(os.fsencode, arguments.values))
        return
    parts: list[bytes] = []  # pieces of an incomplete line
    while piece := await _read():
        head, *lines = piece.split(b"\n")
        parts.append(head)
        check_size(sum(map(len, parts)))
        if lines:
            yield [b"".join(parts), *lines[:-1]]
            parts = lines[-1:]
    if any(parts):
        yield [b"".join(parts)]


def read_whole(path: str) -> bytes:
    """Return the content of a file. Raise PayloadTooLarge before a huge file fills the memory."""
    from oncecast.client.putting import PAYLOAD_BYTES_MAX
    from oncecast.errors import InvalidArgument

    try:
        with open(path, "rb") as file:  # noqa: PTH123  # the path may be a pipe such as /dev/fd/3
            content = file.read(PAYLOAD_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidArgument(f"{path}: {error.strerror}", "use a readable file") from None
    check_size(len(content), path)
    return content


def check_size(size: int, what: str = "the line") -> None:
    """Raise PayloadTooLarge if a line is too long, before an endless line exhausts the memory."""
    from oncecast.client.putting import PAYLOAD_BYTES_MAX, SPLIT
    from oncecast.errors import PayloadTooLarge

    if size > PAYLOAD_BYTES_MAX:
        too_large = PayloadTooLarge("bytes", PAYLOAD_BYTES_MAX)
        raise too_large.reworded(f"{what} is too long (limit {PAYLOAD_BYTES_MAX:,} bytes)", SPLIT)


async def _read() -> bytes:
    """Return bytes from standard input, or b"" at its end.

    Read in a daemon thread, so that Ctrl-C can end the command.
    """
    import asyncio

    from oncecast.errors import InvalidArgument

    loop = asyncio.get_running_loop()
    result: asyncio.Future[bytes | OSError] = loop.create_future()

    def tell(piece: bytes | OSError) -> None:
        if not result.done():
            result.set_result(piece)

    def read() -> None:
        piece: bytes | OSError
        try:
            piece = os.read(sys.stdin.fileno(), READ)
        except OSError as error:
            piece = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, piece)

    threading.Thread(target=read, daemon=True).start()
    piece = await result
    if isinstance(piece, OSError):
        raise InvalidArgument(f"standard input: {piece.strerror}", "use a readable file or pipe")
    return piece
