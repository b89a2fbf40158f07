"""`oncecast get`."""

from __future__ import annotations

import argparse
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from oncecast.cli.connecting import (
    ANSWER_TIMEOUT,
    add_flag,
    add_subscription,
    add_timeout,
    add_topic,
    add_work,
    complain,
    positive,
)
from oncecast.cli.output import add_raw, as_json, print_values
from oncecast.errors import ExitStatus
from oncecast.kernel.escaping import escaped

if TYPE_CHECKING:
    from oncecast.client.client import Client
    from oncecast.client.subscription import Subscription
    from oncecast.wire.message import Message

TOGETHER = 1000  # maximum messages per get


def configure(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], *, in_shell: bool = False
) -> None:
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
    about = "keep getting messages until the command is stopped; sets --count and --timeout"
    get.add_argument("-f", "--follow", action="store_true", help=about)
    add_flag(get, "--keep", "do not acknowledge the messages, so that they are redelivered")
    add_flag(get, "--take-over", "disconnect the current reader of the subscription")
    add_flag(get, "--push", "on a ring, receive messages through the connected process")
    add_raw(get)
    add_timeout(get, 0.0, "how long to wait for messages, or inf for no limit")
    get.set_defaults(patience=ANSWER_TIMEOUT)
    add_work(get, run_get, in_shell=in_shell)


async def run_get(client: Client, arguments: argparse.Namespace) -> int:
    """Print messages and acknowledge them. Messages that could not be printed are redelivered."""
    if arguments.follow:
        arguments.count, arguments.timeout = sys.maxsize, float("inf")
    if not arguments.take_over and await has_reader(client, arguments):
        return complain(
            f"subscription {arguments.subscription!r} of topic {arguments.topic!r} has a reader; "
            "use --take-over to disconnect it, or `oncecast peek` to look at messages",
        )
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


async def has_reader(client: Client, arguments: argparse.Namespace) -> bool:
    """Return whether another process reads the subscription, as far as this user may know."""
    from oncecast.errors import OncecastError

    try:
        view = await client.describe(arguments.topic)
    except OncecastError:
        return False
    return any(
        each.attached and each.shared is None and not each.holders
        for each in view.subscriptions
        if each.name == arguments.subscription
    )


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
    topic = message.topic if message.partition < 0 else f"{message.topic}#{message.partition}"
    return f"{escaped(topic)} {message.offset}: {escaped(value)}"


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
        **({"partition": message.partition} if message.partition >= 0 else {}),
    }


def as_text(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
