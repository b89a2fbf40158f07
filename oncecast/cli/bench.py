"""`oncecast bench put|get|latency`: measure the speed of a cluster as seen by this machine."""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import TYPE_CHECKING

from oncecast.cli.connecting import add_option, add_work, positive, show
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from oncecast.client.client import Client
    from oncecast.client.subscription import Subscription

TURN = 1000  # puts between two iterations of the event loop, and messages per get
PAUSE = 0.001  # seconds between two messages of `latency`
MESSAGES = {"put": 1_000_000, "get": 1_000_000, "latency": 1000}
BYTES_MAX = 16 * 1024 * 1024
SUBSCRIPTION = "bench"


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = "measure the speed of a cluster"
    bench = commands.add_parser("bench", help=about, description=about)
    verbs = bench.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for verb, about, work in (
        ("put", "put messages with a call for each, until all are acknowledged", run_put),
        ("get", "get and acknowledge stored messages", run_get),
        ("latency", "put one message at a time, and wait until a reader has it", run_latency),
    ):
        parser = verbs.add_parser(verb, help=about, description=about)
        add_option(parser, "--messages", "N", "number of messages", MESSAGES[verb], positive)
        add_option(parser, "--size", "BYTES", "bytes per message", 100, message_size)
        add_work(parser, work, in_shell=False)


def message_size(word: str) -> int:
    value = positive(word)
    if value > BYTES_MAX:
        raise argparse.ArgumentTypeError(f"{word} is too large (maximum {BYTES_MAX:,})")
    return value


async def run_put(client: Client, arguments: argparse.Namespace) -> int:
    async with Topic(client) as topic:
        took = await topic.fill(arguments.messages, arguments.size)
    return report_rate(arguments, "put", took)


async def run_get(client: Client, arguments: argparse.Namespace) -> int:
    async with Topic(client) as topic:
        await topic.fill(arguments.messages, arguments.size)
        began, left = perf_counter(), arguments.messages
        async with await client.subscribe(topic.name, SUBSCRIPTION) as reading:
            while left:
                left -= len(await reading.get_many(TURN))
        took = perf_counter() - began
    return report_rate(arguments, "get", took)


async def run_latency(client: Client, arguments: argparse.Namespace) -> int:
    import asyncio

    times = []
    async with (
        Topic(client) as topic,
        await client.subscribe(topic.name, SUBSCRIPTION) as reading,
    ):
        for _ in range(arguments.messages + 1):
            times.append(await trip(client, topic.name, reading, bytes(arguments.size)))
            await asyncio.sleep(PAUSE)
    return report_latency(arguments, sorted(times[1:]))  # the first trip is a warm-up


async def trip(client: Client, topic: str, reading: Subscription, value: bytes) -> float:
    """Return the seconds from a put until a waiting reader has the message."""
    import asyncio

    getting = asyncio.ensure_future(reading.get())
    await asyncio.sleep(0)
    began = perf_counter()
    putting = asyncio.ensure_future(client.put(topic, value))
    await getting
    took = perf_counter() - began
    await putting
    return took


class Topic:
    """A new topic with a subscription. It is deleted at the end."""

    def __init__(self, client: Client) -> None:
        from oncecast.network.entropy import random_hex

        self._client, self.name = client, f"oncecast.bench.{random_hex(8)}"

    async def __aenter__(self) -> Topic:
        await self._client.create_subscription(self.name, SUBSCRIPTION)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.delete_topic(self.name)

    async def fill(self, messages: int, size: int) -> float:
        """Put messages, and return the seconds until all are acknowledged."""
        import asyncio

        value, client = bytes(size), self._client
        began = perf_counter()
        for number in range(messages):
            client.put_nowait(self.name, value)
            if number % TURN == 0:
                await client.wait_for_space()
                await asyncio.sleep(0)
        await client.flush()
        return perf_counter() - began


def report_rate(arguments: argparse.Namespace, what: str, took: float) -> int:
    rate = arguments.messages / took
    fields = {
        "bench": what,
        "messages": arguments.messages,
        "size": arguments.size,
        "seconds": took,
        "messages_per_second": rate,
    }
    size = f"{arguments.messages:,} messages of {arguments.size:,} bytes in {took:.2f} s"
    show(arguments, fields, f"{what}: {rate:,.0f} messages/s ({size})")
    return ExitStatus.OK


def report_latency(arguments: argparse.Namespace, times: list[float]) -> int:
    from statistics import quantiles

    cuts = quantiles(times, n=1000, method="inclusive") if len(times) > 1 else times * 999
    found = {"p50": cuts[499], "p99": cuts[989], "p99.9": cuts[998], "max": times[-1]}
    fields = {"bench": "latency", "messages": arguments.messages, "size": arguments.size}
    text = ", ".join(f"{name} {value * 1e3:.2f} ms" for name, value in found.items())
    show(arguments, fields | {f"{name} seconds": value for name, value in found.items()}, text)
    return ExitStatus.OK
