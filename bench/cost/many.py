"""Measure how long a node with many topics and subscriptions takes to start."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from time import perf_counter

import oncecast
from bench.cost.node import Figure, Found, most, node
from bench.peers.ours import keep
from bench.peers.peer import say
from oncecast.network.network import run


async def subscribe_all(address: str, count: int) -> None:
    async with oncecast.connect(address) as client:
        for start in range(0, count, 500):
            numbers = range(start, min(start + 500, count))
            await asyncio.gather(*(keep(client, f"topic{number}") for number in numbers))


async def ping(address: str) -> None:
    async with oncecast.connect(address) as client:
        await client.ping()


def many(topics: int, root: Path) -> Found:
    with node(root, "many") as each:
        began = perf_counter()
        run(subscribe_all(each.address, topics))
        say(f"many: {topics:,} topics and subscriptions created in {perf_counter() - began:.1f} s")
        yield Figure(f"many: memory with {topics:,} topics made", each.memory_mb(), "MB")
        for how, number in (("SIGTERM", signal.SIGTERM), ("kill -9", signal.SIGKILL)):
            os.kill(each.pid, number)
            each.stop()
            began = perf_counter()
            each.start(each.directory)
            run(ping(each.address))
            yield most(f"many: start after {how}", perf_counter() - began, "s", 5)
        yield Figure("many: memory after the start", each.memory_mb(), "MB")
