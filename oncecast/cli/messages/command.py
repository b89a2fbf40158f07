"""`oncecast put`, `get`, `sub` and `unsub`."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from oncecast.cli.connecting import (
    ANSWER_TIMEOUT,
    POSITIONS,
    add_flag,
    add_identity,
    add_option,
    add_subscription,
    add_timeout,
    add_topic,
    add_work,
    complain,
    moved,
    positive,
    show,
    start,
    unicode,
)
from oncecast.cli.output import add_raw, as_json, print_values
from oncecast.cli.workers.sharing import add_settings, settings_of
from oncecast.errors import ExitStatus
from oncecast.kernel.escaping import escaped

if TYPE_CHECKING:
    from oncecast.client.client import Client
    from oncecast.client.subscription import Subscription
    from oncecast.wire.message import Message

READ = 256 * 1024  # maximum bytes per read from standard input
TOGETHER = 1000  # maximum messages per put or get


# Long because it is one table of commands and their options.
def configure(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], *, in_shell: bool = False
) -> None:
    put = commands.add_parser("put", help="put messages", description="Put messages in a topic.")
    add_topic(put)
    lines = "message to put"
    if not in_shell:
        lines += "; a single - reads messages from the lines of standard input"
    put.add_argument("values", metavar="VALUE", nargs="+", help=lines)
    put.add_argument("--key", type=os.fsencode, help="key of each message")
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

    get = commands.add_parser(
        "get", help="get messages", description="Get the next messages from a topic."
    )
    add_topic(get)
    add_subscription(get)
    get.add_argument(
        "-n",
        "--count",
        metavar="N",
        type=positive,
        default=1,
        help="maximum number of messages (default: 1)",
    )
    add_flag(get, "--keep", "do not acknowledge the messages, so that they are redelivered")
    add_flag(get, "--push", "on a ring, receive messages through the connected process")
    add_raw(get)
    add_timeout(get, 0.0, "how long to wait for messages, or inf for no limit")
    get.set_defaults(patience=ANSWER_TIMEOUT)
    add_work(get, run_get, in_shell=in_shell)

    sub = commands.add_parser(
        "sub", help="subscribe to a topic", description="Subscribe to a topic."
    )
    add_topic(sub)
    add_subscription(sub)
    add_option(sub, "--start", None, f"where to start reading: {POSITIONS}", "new", start)
    add_flag(sub, "--shared", "share the subscription among workers; see `oncecast work`")
    add_settings(sub)
    add_work(sub, run_sub, in_shell=in_shell)

    unsub = commands.add_parser(
        "unsub", help="delete a subscription", description="Delete a subscription."
    )
    add_topic(unsub)
    add_subscription(unsub)
    add_work(unsub, run_unsub, in_shell=in_shell)


def header(word: str) -> tuple[str, bytes]:
    name, equals, value = word.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{word!r} is not a header; use NAME=VALUE")
    return unicode(name), os.fsencode(value)


# put


def add_timing(put: argparse.ArgumentParser) -> None:
    when = put.add_mutually_exclusive_group()
    about = "how long each message waits until readers see it, for example 90s, 12h or 7d"
    when.add_argument("--delay", metavar="TIME", type=duration, help=about)
    about = "when readers see each message, for example 2030-01-31T12:00 (local time) or ...Z (UTC)"
    when.add_argument("--at", metavar="WHEN", type=moment, help=about)
    about = "how long workers may get each message, for example 90s, 12h or 7d"
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
    facts = (arguments.key, headers, arguments.timeout)
    puts = [client.put(topic, value, *facts, **times) for value in values]
    receipts = await asyncio.gather(*puts)
    for offset, kept in receipts:
        fields = {"topic": topic, "offset": offset, "kept": kept, "producer": client.name}
        show(arguments, fields, "delayed" if is_delayed(arguments) and offset < 0 else str(offset))
    return all(kept is not False for _, kept in receipts)


def is_delayed(arguments: argparse.Namespace) -> bool:
    return arguments.delay is not None or arguments.at is not None


async def to_put(arguments: argparse.Namespace) -> AsyncIterator[list[bytes]]:
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


def check_size(size: int) -> None:
    """Raise PayloadTooLarge if a line is too long, before an endless line exhausts the memory."""
    from oncecast.client.putting import PAYLOAD_BYTES_MAX, SPLIT
    from oncecast.errors import PayloadTooLarge

    if size > PAYLOAD_BYTES_MAX:
        too_large = PayloadTooLarge("bytes", PAYLOAD_BYTES_MAX)
        raise too_large.reworded(f"the line is too long (limit {PAYLOAD_BYTES_MAX:,} bytes)", SPLIT)


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


# get


async def run_get(client: Client, arguments: argparse.Namespace) -> int:
    """Print messages and acknowledge them. Messages that could not be printed are redelivered."""
    left = arguments.count
    status: int = ExitStatus.OK
    async with await client.read(
        arguments.topic,
        arguments.subscription,
        auto_ack=not arguments.keep,
        push=arguments.push,
    ) as subscription:
        async for messages in _arriving(subscription, arguments):
            if isinstance(messages, str):
                status = complain(messages)
                continue
            write(arguments, messages)
            left -= len(messages)
    if left == arguments.count and status == ExitStatus.OK:
        return complain(
            f"no message in topic {arguments.topic!r} for subscription {arguments.subscription!r}; "
            "set --timeout to wait for one",
            ExitStatus.EMPTY,
        )
    return status


async def _arriving(
    subscription: Subscription, arguments: argparse.Namespace
) -> AsyncIterator[list[Message] | str]:
    """Yield messages until the count or the timeout is reached. Yield a note for each loss."""
    import asyncio

    from oncecast.errors import MessagesLost

    loop = asyncio.get_running_loop()
    deadline, left = loop.time() + arguments.timeout, arguments.count
    while left:
        wait = max(0.0, deadline - loop.time())
        try:
            messages = await subscription.get_many(
                min(left, TOGETHER), None if wait == float("inf") else wait
            )
        except MessagesLost as lost:
            yield str(lost)
            continue
        if not messages:
            return
        left -= len(messages)
        yield messages


def write(arguments: argparse.Namespace, messages: Iterable[Message]) -> None:
    if arguments.json:
        print("\n".join(as_lines(messages)), flush=True)
        return
    print_values((message.value for message in messages), raw=arguments.raw)


def as_lines(messages: Iterable[Message]) -> Iterator[str]:
    """Yield a JSON line for each message."""
    return (as_json(as_fields(message)) for message in messages)


def in_words(message: Message) -> str:
    """Return the text to show on a terminal."""
    value = message.value.decode(errors="backslashreplace")
    return f"{escaped(message.topic)} {message.offset}: {escaped(value)}"


def as_fields(message: Message) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "offset": message.offset,
        "key": None if message.key is None else as_text(message.key),
        "value": as_text(message.value),
        "headers": {name: as_text(value) for name, value in message.headers.items()},
        "timestamp": message.timestamp,
        "producer": message.producer,
        "sequence": message.sequence,
        "redelivered": message.redelivered,
    }


def as_text(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


# sub, unsub


async def run_sub(client: Client, arguments: argparse.Namespace) -> int:
    topic, name = arguments.topic, arguments.subscription
    # Create it without reading: a read would fence the current reader.
    shared = settings_of(arguments)
    if arguments.shared and shared is None:
        from oncecast.client.shared import Shared

        shared = Shared()
    elif shared is not None and not arguments.shared:
        return complain(
            "these settings are for shared subscriptions; add --shared", ExitStatus.USAGE
        )
    offset, new = await client.create_subscription(
        topic, name, start=arguments.start, shared=shared
    )
    note = moved(arguments.start, offset) if new else ""
    fact = "created" if new else "exists already"
    show(
        arguments,
        {
            "topic": topic,
            "subscription": name,
            "cursor": offset,
            "already": not new,
            "moved": bool(note),
        },
        f"{topic}: subscription {name} {fact}, next offset {offset}{note}",
    )
    return ExitStatus.OK


async def run_unsub(client: Client, arguments: argparse.Namespace) -> int:
    topic, name = arguments.topic, arguments.subscription
    there = await client.unsubscribe(topic, name)
    show(
        arguments,
        {"topic": topic, "subscription": name, "already": not there},
        f"{topic}: subscription {name} {'removed' if there else 'does not exist'}",
    )
    return ExitStatus.OK
