"""Measure whether one stalled subscriber slows down 99 other subscribers."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, nullcontext
from pathlib import Path
from statistics import median
from time import perf_counter

import oncecast
from bench.cost.node import Figure, Found, most, node
from bench.peers.ours import get_all, put_all
from bench.peers.peer import say
from oncecast.network.network import run

SUBSCRIBERS = 100
VALUE = bytes(1000)  # all values together exceed the window of a stalled subscriber
ROUNDS = 15  # each round takes a few seconds, or twice as long on a noisy machine
HOW = {False: "99 active", True: "99 active, 1 stalled"}

READER = """
import asyncio, sys, oncecast
async def main():
    async with oncecast.connect(sys.argv[1]) as client:
        reading = await client.subscribe(sys.argv[2], "one")
        print("ready", flush=True)
        await asyncio.sleep(3600)
asyncio.run(main())
"""


@contextmanager
def stalled_one(address: str, topic: str) -> Iterator[None]:
    """Start a subscriber process and stop it as soon as it has subscribed."""
    command = [sys.executable, "-c", READER, address, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(signal.SIGSTOP)
            yield
        finally:
            process.kill()


async def others(address: str, topic: str, count: int, stalled: bool) -> float:
    """Return the seconds until 99 subscribers have all messages."""
    async with AsyncExitStack() as clients:
        readings = []
        for number in range(SUBSCRIBERS - 1):
            client = await clients.enter_async_context(oncecast.connect(address))
            readings.append(await client.subscribe(topic, f"reader{number}"))
        publisher = await clients.enter_async_context(oncecast.connect(address))
        with stalled_one(address, topic) if stalled else nullcontext():
            began = perf_counter()
            await asyncio.gather(
                put_all(publisher, topic, [VALUE] * count),
                *(get_all(reading, count) for reading in readings),
            )
            took = perf_counter() - began
        await publisher.delete_topic(topic)
    return took


def stall(messages: int, root: Path) -> Found:
    times: dict[bool, list[float]] = {False: [], True: []}
    cpu: dict[bool, list[float]] = {False: [], True: []}
    with node(root, "stall") as each:
        for number in range(ROUNDS + 1):  # the first round is a warm-up
            for stalled in (False, True) if number % 2 else (True, False):
                used = each.cpu_seconds()
                took = run(others(each.address, f"t{number}{stalled}", messages, stalled))
                say(f"stall: round {number} of {ROUNDS}, {HOW[stalled]}: {took:.2f} s")
                if number:
                    times[stalled].append(took)
                    cpu[stalled].append(each.cpu_seconds() - used)
    slower = [after / before - 1 for before, after in zip(times[False], times[True], strict=True)]
    deliveries = messages * (SUBSCRIBERS - 1)
    for stalled, how in HOW.items():
        yield Figure(f"stall: {how}", deliveries / median(times[stalled]), "deliveries/s")
        yield Figure(f"stall: {how}, the node's CPU", median(cpu[stalled]), "s")
    spread = f"{min(slower):.0%} to {max(slower):.0%}"
    yield most(
        f"stall: slowdown of the other 99 subscribers ({spread})", 100 * median(slower), "%", 10
    )
