"""Measure a large backlog: memory, put rate compared with an empty node, and freed disk space."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter
from typing import Any

import oncecast
from bench.cost.node import ROUNDS, VALUE, Figure, Found, Node, most, node
from bench.peers.ours import get_all, put_all
from bench.peers.peer import say
from oncecast.network.network import run

WINDOWS = 20  # number of parts of a backlog; the last ROUNDS parts alternate with an empty node
CLIENTS = 50
COLLECTED = 60.0  # seconds within which the disk space must be freed
# Twice the number of bytes between snapshots, plus one preallocated segment.
DISK_MB = 3 * 67.2


@asynccontextmanager
async def slow_subscriber(address: str, topic: str) -> AsyncIterator[None]:
    """Run a subscriber that reads at most a hundred messages per second."""
    async with oncecast.connect(address) as client:
        reading = await client.subscribe(topic, "slow")

        async def work() -> None:
            while True:
                await reading.get()
                await asyncio.sleep(0.01)

        task = asyncio.ensure_future(work())
        try:
            yield
        finally:
            task.cancel()
            await reading.close(ack=False)


Putting = Callable[[list[oncecast.Client], int], Coroutine[Any, Any, None]]


async def put_bulk(clients: list[oncecast.Client], count: int) -> None:
    await put_all(clients[0], "topic", [VALUE] * count)


async def put_single(clients: list[oncecast.Client], count: int) -> None:
    """Put with clients that wait for each ack, so that no messages share a batch."""

    async def work(client: oncecast.Client) -> None:
        for _ in range(count // len(clients)):
            await client.put("topic", VALUE)

    await asyncio.gather(*map(work, clients))


async def put_rate(put: Putting, address: str, count: int) -> float:
    async with slow_subscriber(address, "topic"), AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(oncecast.connect(address)) for _ in range(CLIENTS)
        ]
        began = perf_counter()
        await put(clients, count)
        return count / (perf_counter() - began)


async def forget(address: str) -> None:
    async with oncecast.connect(address) as client:
        await client.delete_topic("topic")


def backlog(name: str, put: Putting, total: int, root: Path) -> Found:
    window, ratios, full_rates, empty_rates = total // WINDOWS, [], [], []
    with node(root, "full") as full, node(root, "empty") as empty:
        began = full.memory_mb()
        for number in range(1, WINDOWS + 1):
            rate = run(put_rate(put, full.address, window))
            say(f"{name}: {number * window:,} put, {rate:,.0f}/s, {full.memory_mb():.0f} MB")
            if number > WINDOWS - ROUNDS:
                other = run(put_rate(put, empty.address, window))
                run(forget(empty.address))
                say(f"{name}: empty node {other:,.0f}/s")
                full_rates.append(rate)
                empty_rates.append(other)
                ratios.append(rate / other)
        yield Figure(f"{name}: memory of a new node", began, "MB")
        yield most(f"{name}: memory with {total:,} messages", full.memory_mb(), "MB", 300)
        yield most(f"{name}: peak memory", full.memory_mb("VmHWM"), "MB", 300)
        yield Figure(f"{name}: put rate", median(full_rates), "msg/s")
        yield Figure(f"{name}: put rate of an empty node", median(empty_rates), "msg/s")
        ratio = median(ratios)
        spread = f"put rate relative to an empty node ({min(ratios):.2f} to {max(ratios):.2f})"
        yield Figure(f"{name}: {spread}", ratio, "", ">= 0.8", ratio >= 0.8)
        yield from collection(name, full)
        yield from restart(name, full)


def collection(name: str, full: Node) -> Found:
    before = full.disk_mb()

    async def read() -> float:
        async with oncecast.connect(full.address) as client:
            view = await client.describe("topic")
            left = sum(each.lag for each in view.subscriptions)
            began = perf_counter()
            await get_all(await client.read("topic", "slow"), left)
            return left / (perf_counter() - began)

    rate = run(read())
    say(f"{name}: all read, {rate:,.0f}/s")
    until = monotonic() + COLLECTED
    after = full.disk_mb()
    while after > DISK_MB and monotonic() < until:
        run(asyncio.sleep(0.2))
        after = full.disk_mb()
    yield Figure(f"{name}: read rate", rate, "msg/s")
    yield Figure(f"{name}: disk space before reading", before, "MB")
    yield most(f"{name}: disk space after reading", after, "MB", DISK_MB)
    yield Figure(f"{name}: memory after the read", full.memory_mb(), "MB")


def restart(name: str, each: Node) -> Found:
    each.stop()
    began = perf_counter()
    each.start(each.directory)
    yield Figure(f"{name}: start after the read", perf_counter() - began, "s")
