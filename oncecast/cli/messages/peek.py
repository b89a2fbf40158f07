"""`oncecast peek`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from oncecast.cli.connecting import (
    OFFSETS,
    POSITIONS,
    add_option,
    add_topic,
    add_work,
    complain,
    positive,
    start,
)
from oncecast.cli.messages.get import write
from oncecast.cli.output import add_raw
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from oncecast.client.client import Client
    from oncecast.wire.commands import Start

COUNT = 10
BYTES = 1 << 20  # maximum bytes per request


def configure(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], *, in_shell: bool = False
) -> None:
    peek = commands.add_parser(
        "peek",
        help="show messages without a subscription",
        description="Show messages of a topic without a subscription.",
    )
    add_topic(peek)
    add_option(peek, "--from", None, f"where to begin: {POSITIONS}", "earliest", start)
    add_option(peek, "--to", "OFFSET", "end before this offset (default: the end)", kind=offset)
    peek.add_argument(
        "-n",
        "--count",
        metavar="N",
        type=positive,
        default=COUNT,
        help="maximum number of messages (default: %(default)s)",
    )
    add_raw(peek)
    add_work(peek, run_peek, in_shell=in_shell)


def offset(word: str) -> int:
    if not (word.isdecimal() and int(word) < OFFSETS):
        raise argparse.ArgumentTypeError(f"{word!r} is not an offset; use 0 or more")
    return int(word)


async def run_peek(client: Client, arguments: argparse.Namespace) -> int:
    """Print messages. Subscriptions and their readers do not notice."""
    from oncecast.client.starts import from_offset

    begin: Start = getattr(arguments, "from")
    found = await client.locate(arguments.topic, begin)
    until = found.next if arguments.to is None else min(arguments.to, found.next)
    left = min(arguments.count, until - found.offset)
    if left <= 0:
        kept = f"{found.first} to {found.next - 1}" if found.next > found.first else "none"
        return complain(
            f"topic {arguments.topic!r} has no message in this range; offsets kept: {kept}",
            ExitStatus.EMPTY,
        )
    until = found.offset + left
    pages = client.scan(
        arguments.topic,
        from_offset(found.offset),
        until,
        topic_id=found.topic_id,
        size=BYTES,
    )
    async for each in pages:
        write(arguments, each.messages()[: until - each.offset])
    return ExitStatus.OK
