"""`oncecast stream read` and `stream write`: exchange values between processes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from oncecast.cli.connecting import (
    ANSWER_TIMEOUT,
    add_connection,
    add_json,
    add_option,
    add_timeout,
    called,
    complain,
    counted,
    named_client,
    positive,
    report_error,
    show,
)
from oncecast.cli.coordination.membership import (
    add_joining,
    addresses,
    join_at,
    run_member,
)
from oncecast.cli.output import add_raw, print_values
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from oncecast.cli.coordination.membership import Work
    from oncecast.coordination import Node, QoS, Sample
    from oncecast.streams.reader import Reader

KEYS_SHOWN = 64  # maximum number of characters shown of a key
FLUSH_WITHIN = 30.0
QUALITIES = {
    "--deadline": "maximum time between values of a key (default: no limit)",
    "--lifespan": "time after which a value expires (default: never)",
    "--liveliness": "maximum time without hearing from a writer (default: no limit)",
}
LIMITS = {
    "--samples-max": "maximum number of values in the cache (default: 100000)",
    "--keys-max": "maximum number of keys in the cache (default: 10000)",
}


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    stream = commands.add_parser("stream", help="read and write streams", description=__doc__)
    verbs = stream.add_subparsers(title="commands", metavar="COMMAND", required=True)

    write = _verb(verbs, "write", "write values to a stream", run_write)
    write.add_argument(
        "values",
        metavar="VALUE",
        nargs="+",
        help="value to write; a single - reads values from the lines of standard input",
    )
    write.add_argument(
        "--key", type=os.fsencode, default=b"", help="key of each value (default: empty)"
    )
    write.add_argument(
        "--readers",
        metavar="N",
        type=count,
        help="number of readers to wait for before writing (default: 1, or 0 if persistent)",
    )
    write.add_argument(
        "--blocking-max",
        metavar="SECONDS",
        type=float,
        help="how long a write waits for buffer space (default: 1)",
    )
    add_timeout(write, 5.0, "how long to wait for readers")
    write.set_defaults(lines=True)

    read = _verb(verbs, "read", "read values from a stream", run_read)
    read.add_argument(
        "-n",
        "--count",
        metavar="N",
        type=positive,
        help="maximum number of values (default: no limit)",
    )
    add_raw(read)
    add_timeout(read, 5.0, "how long to wait for the next value, or inf for no limit")


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, about: str, work: Work
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=about, description=about)
    verb.add_argument("name", metavar="NAME", type=called, help="stream name")
    verb.add_argument(
        "--reliability",
        choices=("best-effort", "reliable", "agreed"),
        default="reliable",
        help="delivery guarantee (default: %(default)s)",
    )
    add_option(verb, "--history", "N", "number of values to keep for each key, or all", "all")
    verb.add_argument(
        "--durability",
        choices=("volatile", "transient-local", "persistent"),
        default="volatile",
        help="where values are kept for late readers (default: %(default)s)",
    )
    for option, help_ in QUALITIES.items():
        verb.add_argument(option, metavar="SECONDS", type=float, help=help_)
    for option, help_ in LIMITS.items():
        verb.add_argument(option, metavar="N", type=int, help=help_)
    add_joining(verb)
    add_connection(verb)
    add_json(verb)
    verb.set_defaults(run=lambda arguments: run_stream(arguments, work), patience=ANSWER_TIMEOUT)
    return verb


def count(word: str) -> int:
    return 0 if word == "0" else positive(word)


def qos_of(arguments: argparse.Namespace) -> QoS:
    """Return the QoS that the options describe. Raise BadQoS if it is invalid."""
    from oncecast.coordination import KEEP_ALL, BadQoS, Durability, QoS, Reliability

    facts: dict[str, Any] = {}
    for option in (*QUALITIES, *LIMITS, "--blocking-max"):
        name = option[2:].replace("-", "_")
        if getattr(arguments, name, None) is not None:
            facts[name] = getattr(arguments, name)
    try:
        history = KEEP_ALL if arguments.history == "all" else int(arguments.history)
    except ValueError:
        raise BadQoS(
            f"history {arguments.history!r} is not a number or 'all'",
            "use a number of 1 or more, or 'all'",
        ) from None
    if history == KEEP_ALL and arguments.history != "all":
        raise BadQoS(f"history is {history}", "use 1 or more, or 'all'")
    return QoS(
        reliability=Reliability[arguments.reliability.upper().replace("-", "_")],
        durability=Durability[arguments.durability.upper().replace("-", "_")],
        history=history,
        **facts,
    ).checked()


def run_stream(arguments: argparse.Namespace, work: Work) -> int:
    from oncecast.coordination import BadQoS

    try:
        arguments.qos = qos_of(arguments)
    except BadQoS as error:
        return report_error(error)
    return run_member(arguments, work)


@asynccontextmanager
async def joined(arguments: argparse.Namespace) -> AsyncIterator[Node]:
    """Join through a cluster if --server is set or the stream is persistent, else through peers."""
    listen, peers = addresses(arguments)
    if arguments.server or arguments.durability == "persistent":
        async with (
            named_client(arguments, None) as client,  # arguments.name is the stream
            join_at(arguments, listen, through=client) as node,
        ):
            yield node
        return
    if arguments.listen and not arguments.peers:
        peers = []  # other processes connect to this process
    async with join_at(arguments, listen, peers=peers) as node:
        yield node


# write


async def run_write(arguments: argparse.Namespace) -> int:
    from oncecast.cli.messages.put import to_put
    from oncecast.coordination import NotMatched

    written = 0
    readers = arguments.readers
    if readers is None:
        readers = 0 if arguments.durability == "persistent" else 1
    async with (
        joined(arguments) as node,
        node.stream(arguments.name, arguments.qos).writer() as writer,
    ):
        try:
            await writer.wait_for_readers(readers, arguments.timeout)
        except NotMatched as error:
            return report_error(error)
        async for values in to_put(arguments):
            for value in values:
                await writer.write(value, arguments.key)
            written += len(values)
        await writer.flush(FLUSH_WITHIN)
    show(arguments, {"stream": arguments.name, "written": written}, None)
    return ExitStatus.OK


# read


async def run_read(arguments: argparse.Namespace) -> int:
    import asyncio

    from oncecast.coordination import NotMatched

    read = 0
    async with joined(arguments) as node:
        reader = node.stream(arguments.name, arguments.qos).reader()
        telling = asyncio.create_task(tell(reader))
        try:
            if arguments.durability != "persistent":
                await reader.wait_for_writers(1, arguments.timeout)
            async for samples in arriving(reader, arguments.count, arguments.timeout):
                write(arguments, samples)
                read += len(samples)
        except NotMatched as error:
            return report_error(error)
        finally:
            telling.cancel()
    if read:
        return ExitStatus.OK
    fact = f"no value from stream {arguments.name!r} within {arguments.timeout:g} s"
    return complain(f"{fact}; raise --timeout to wait longer", ExitStatus.EMPTY)


async def arriving(
    reader: Reader, most: int | None, patience: float
) -> AsyncIterator[list[Sample]]:
    """Yield values until `most` have arrived, or none arrives within `patience` seconds."""
    left = most if most is not None else sys.maxsize
    while left and await reader.wait(None if patience == float("inf") else patience):
        yield (samples := await reader.take_some(min(left, 1000)))
        left -= len(samples)


async def tell(reader: Reader) -> None:
    """Print the other events of the stream to standard error."""
    async for event in reader.events():
        words = in_words(event)
        if words:
            complain(f"stream {reader.name!r}: {words}")


def in_words(event: object) -> str:
    from oncecast.streams.protocols import events

    match event:
        case events.Mismatched(_, _, peer, qualities):
            return f"{peer} offers less than requested: {', '.join(qualities)}"
        case events.DeadlineMissed(_, _, key):
            return f"no new value for key {as_key(key)!r} before the deadline"
        case events.Liveliness(_, writer, alive):
            return f"{writer} is {'alive again' if alive else 'silent'}"
        case events.SamplesLost(_, writer, lost):
            return f"lost {counted(lost, 'value')} from {writer}"
        case events.SamplesRejected(_, writer, rejected):
            return f"rejected {counted(rejected, 'value')} from {writer}: the cache is full"
        case _:
            return ""


def as_key(key: bytes) -> str:
    return key[:KEYS_SHOWN].decode(errors="backslashreplace")


def write(arguments: argparse.Namespace, samples: list[Sample]) -> None:
    from oncecast.cli.messages.get import as_text

    if arguments.json:
        for each in samples:
            fields = {
                "stream": arguments.name,
                "writer": each.writer,
                "number": each.number,
                "key": as_text(each.key),
                "value": as_text(each.value),
            }
            show(arguments, fields, None)
        sys.stdout.flush()
    else:
        print_values((each.value for each in samples), raw=arguments.raw)
