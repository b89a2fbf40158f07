"""`oncecast queue put`, `take`, `peek`, `stats`: queue elements, each taken by one process."""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from oncecast.cli.connecting import add_json, add_timeout, called, complain, counted, positive, show
from oncecast.cli.coordination.membership import (
    HEARTBEAT,
    NO_KEEPER,
    add_joining,
    joined,
    run_member,
)
from oncecast.cli.output import add_raw, print_values
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from oncecast.cli.coordination.membership import Work
    from oncecast.coordination.handles import Queue

ANSWER_WITHIN = 30.0
TOGETHER = 64  # maximum number of elements put or taken at a time
LOOK_EVERY = 0.02
# New elements arrive by gossip. Older ones arrive when processes compare their copies.
QUIET = 4 * HEARTBEAT


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    queue = commands.add_parser(
        "queue", help="put and take elements of a queue", description=__doc__
    )
    verbs = queue.add_subparsers(title="commands", metavar="COMMAND", required=True)

    put = _verb(verbs, "put", "put elements in a queue", run_put)
    put.add_argument(
        "values",
        metavar="VALUE",
        nargs="+",
        help="element to put; a single - reads elements from the lines of standard input",
    )
    put.set_defaults(lines=True)
    take = _verb(verbs, "take", "take elements out of a queue", run_take)
    add_timeout(take, 2.0, "how long to wait for elements, or inf for no limit")
    peek = _verb(verbs, "peek", "print elements without taking them", run_peek)
    for verb in (take, peek):
        about = "maximum number of elements (default: %(default)s)"
        add_raw(verb)
        verb.add_argument("-n", "--count", metavar="N", type=positive, default=1, help=about)
    _verb(verbs, "stats", "print the queue length and the number of keepers", run_stats)


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, about: str, work: Work
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=about, description=about)
    verb.add_argument("name", metavar="NAME", type=called, help="queue name")
    add_joining(verb)
    add_json(verb)
    verb.set_defaults(run=lambda arguments: run_member(arguments, work))
    return verb


async def run_put(arguments: argparse.Namespace) -> int:
    import asyncio

    from oncecast.cli.messages.put import to_put

    count = 0
    async with joined(arguments) as node:
        queue = node.queue(arguments.name)
        async for values in to_put(arguments):
            for at in range(0, len(values), TOGETHER):
                some = values[at : at + TOGETHER]
                await asyncio.gather(*(queue.deposit(each, ANSWER_WITHIN) for each in some))
                count += len(some)
    show(arguments, {"queue": arguments.name, "put": count}, None)
    return ExitStatus.OK


async def run_take(arguments: argparse.Namespace) -> int:
    taken = 0
    async with joined(arguments) as node:
        queue = node.queue(arguments.name)
        async for elements in taking(queue, arguments.count, arguments.timeout):
            write(arguments, elements)
            taken += len(elements)
    if taken:
        return ExitStatus.OK
    return complain(
        f"queue {arguments.name!r} is empty; raise --timeout to wait longer",
        ExitStatus.EMPTY,
    )


async def taking(queue: Queue, count: int, patience: float) -> AsyncIterator[list[bytes]]:
    """Yield elements until `count` are taken or the timeout expires.

    Always wait for a request that was sent. Otherwise its element would be lost.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    while count:
        some = min(count, len(queue), TOGETHER)
        if some:
            yield (elements := await dequeued(queue, some))
            count -= len(elements)
        elif loop.time() > until:
            return
        else:
            await asyncio.sleep(LOOK_EVERY)


async def dequeued(queue: Queue, count: int) -> list[bytes]:
    import asyncio

    from oncecast.errors import NoQuorum

    try:
        async with asyncio.timeout(ANSWER_WITHIN):
            found = await asyncio.gather(*(queue.dequeue() for _ in range(count)))
    except TimeoutError:
        message = (
            f"queue {queue.name!r}: no answer, and up to {counted(count, 'element')} may be lost"
        )
        raise NoQuorum(message, NO_KEEPER) from None
    return [each for each in found if each is not None]


async def run_peek(arguments: argparse.Namespace) -> int:
    async with joined(arguments) as node:
        queue = node.queue(arguments.name)
        await quiet(queue, arguments.count)
        elements = queue.peek(arguments.count)
    write(arguments, elements)
    if not elements:
        return complain(f"queue {arguments.name!r} is empty", ExitStatus.EMPTY)
    return ExitStatus.OK


async def run_stats(arguments: argparse.Namespace) -> int:
    async with joined(arguments) as node:
        queue = node.queue(arguments.name)
        await quiet(queue)
        keepers = [each for each in node.acceptors if each in node.group.view]
        guests = len(node.group.view) - len(keepers) - 1  # all other processes except the keepers
        facts = {
            "queue": arguments.name,
            "length": len(queue),
            "keepers": keepers,
            "keepers_away": [each for each in node.acceptors if each not in keepers],
            "others": guests,
        }
    show(
        arguments,
        facts,
        f"{arguments.name}: {counted(len(queue), 'element')}; {len(keepers)} of "
        f"{len(node.acceptors)} keepers and "
        f"{counted(guests, 'other process', 'other processes')} reachable",
    )
    return ExitStatus.OK


async def quiet(queue: Queue, enough: int | None = None) -> None:
    """Wait until the local copy stops growing or has enough elements."""
    import asyncio

    loop = asyncio.get_running_loop()
    length, since = len(queue), loop.time()
    while loop.time() < since + QUIET and (enough is None or len(queue) < enough):
        await asyncio.sleep(LOOK_EVERY)
        if len(queue) > length:
            length, since = len(queue), loop.time()


def write(arguments: argparse.Namespace, elements: list[bytes]) -> None:
    from oncecast.cli.messages.get import as_text

    if arguments.json:
        for each in elements:
            show(arguments, {"queue": arguments.name, "value": as_text(each)}, None)
        sys.stdout.flush()
    else:
        print_values(elements, raw=arguments.raw)
