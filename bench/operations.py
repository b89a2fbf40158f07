"""Measure the time and CPU use of each client operation on one node.

put         one `await put` of 100 B after the other; it returns when the message is on disk
put to get  the time from a put until a waiting subscriber has the message
256 puts    256 tasks, each with one `await put` after the other
nowait      `put_nowait` of 100 B and of 1 KiB, then `flush`;  many: `put_many`
get         `get` of one message, `get_many`, and ten subscriptions that each read all messages
sync        the lower bound: a write and fdatasync of 200 B, on the same disk

With --beside, the program alternates with another checkout. Figures are medians over rounds, with
min and max.

    python bench/operations.py [--json] [--rounds 5] [--beside CHECKOUT] [--only NAME]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from oncecast.client.client import EARLIEST, Client
from oncecast.client.subscription import Subscription
from oncecast.network.network import run

HERE = Path(__file__).resolve().parent.parent
SMALL, LARGE = b"x" * 100, b"x" * 1024
PUTS = 1_000
TASKS, EACH = 256, 100
BULK = 200_000
A_TURN = 1_000  # number of puts before the event loop runs again
READERS = 10
BATCH = 1_000  # number of messages per get_many

Figures = dict[str, float]


class Node:
    """A node in its own process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __enter__(self) -> Node:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        command = ["serve", "--data", str(self.directory), "--listen", self.address]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "oncecast", *command], stderr=subprocess.PIPE
        )
        assert self._process.stderr is not None
        self._process.stderr.readline()  # the node has recovered, and listens next
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stderr is not None
        self._process.kill()
        self._process.wait()
        self._process.stderr.close()

    @property
    def cpu(self) -> float:
        return cpu_seconds(self._process.pid)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9


async def counted(node: Node, count: int, work: Awaitable[object]) -> Figures:
    """Run `work`. Return its rate, and the CPU time per operation of the node and the client."""
    node_cpu, client_cpu, start = node.cpu, cpu_seconds(os.getpid()), perf_counter()
    await work
    seconds = perf_counter() - start
    return {
        "a second": count / seconds,
        "node us": (node.cpu - node_cpu) / count * 1e6,
        "client us": (cpu_seconds(os.getpid()) - client_cpu) / count * 1e6,
    }


# -- one at a time --


async def put(node: Node, client: Client) -> Figures:
    times = []

    async def puts() -> None:
        for _ in range(PUTS):
            start = perf_counter()
            await client.put("t", SMALL)
            times.append(perf_counter() - start)

    found = await counted(node, PUTS, puts())
    return {"p50 us": median(times) * 1e6, **found}


async def put_to_get(node: Node, client: Client) -> Figures:
    times = []

    async def there(subscription: Subscription) -> None:
        for _ in range(PUTS):
            getting = asyncio.create_task(subscription.get())
            await asyncio.sleep(0)  # let the subscriber start waiting
            start = perf_counter()
            putting = asyncio.create_task(client.put("t", SMALL))
            await getting
            times.append(perf_counter() - start)
            await putting

    async with Client(node.address) as other:
        found = await counted(node, PUTS, there(await other.subscribe("t")))
    return {"p50 us": median(times) * 1e6, **found}


async def putters(node: Node, client: Client) -> Figures:
    async def one() -> None:
        for _ in range(EACH):
            await client.put("t", SMALL)

    return await counted(node, TASKS * EACH, asyncio.gather(*(one() for _ in range(TASKS))))


# -- many at a time --


async def bulk(client: Client, value: bytes, count: int) -> None:
    for number in range(count):
        client.put_nowait("t", value)
        if number % A_TURN == 0:
            await client.wait_for_space()
            await asyncio.sleep(0)
    await client.flush()


async def nowait(node: Node, client: Client) -> Figures:
    return await counted(node, BULK, bulk(client, SMALL, BULK))


async def nowait_large(node: Node, client: Client) -> Figures:
    return await counted(node, BULK // 4, bulk(client, LARGE, BULK // 4))


async def many(node: Node, client: Client) -> Figures:
    values = [SMALL] * BULK
    return await counted(node, BULK, client.put_many("t", values))


# -- reading --


async def get(node: Node, client: Client) -> Figures:
    async def one_by_one(subscription: Subscription) -> None:
        for _ in range(BULK):
            await subscription.get()
        await subscription.flush()

    subscription = await filled(client)
    return await counted(node, BULK, one_by_one(subscription))


async def get_many(node: Node, client: Client) -> Figures:
    subscription = await filled(client)
    return await counted(node, BULK, read_all(subscription))


async def fan_out(node: Node, client: Client) -> Figures:
    """Measure from the first put to the last delivery."""

    async def all_of_it() -> None:
        async with asyncio.TaskGroup() as group:
            for each in subscriptions:
                group.create_task(read_all(each))
            group.create_task(bulk(client, SMALL, BULK))

    async with Client(node.address) as other:
        subscriptions = [await other.subscribe("t", f"s{number}") for number in range(READERS)]
        return await counted(node, READERS * BULK, all_of_it())


async def filled(client: Client) -> Subscription:
    await client.create_topic("t")
    subscription = await client.subscribe("t", "s", start=EARLIEST)
    await subscription.close()
    await bulk(client, SMALL, BULK)
    return await client.read("t", "s")


async def read_all(subscription: Subscription) -> None:
    left = BULK
    while left:
        left -= len(await subscription.get_many(BATCH))
    await subscription.flush()


MEASURES: dict[str, Callable[[Node, Client], Awaitable[Figures]]] = {
    "put": put,
    "put to get": put_to_get,
    "256 puts": putters,
    "nowait 100 B": nowait,
    "nowait 1 KiB": nowait_large,
    "put_many": many,
    "get": get,
    "get_many": get_many,
    "fan-out 10": fan_out,
}


async def measure(name: str, node: Node) -> Figures:
    async with Client(node.address, connect_timeout=10) as client:
        await client.put("t", SMALL)  # opens the producer, whose cost must not be measured
        return await MEASURES[name](node, client)


def sync_floor(directory: Path) -> Figures:
    times, size = [], 200
    fd = os.open(directory / "floor", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, PUTS * size)
    os.fsync(fd)
    for number in range(PUTS):
        start = perf_counter()
        os.pwrite(fd, bytes(size), number * size)
        os.fdatasync(fd)
        times.append(perf_counter() - start)
    os.close(fd)
    return {"p50 us": median(times) * 1e6}


# -- all of it --


def measured(checkout: Path, name: str, root: Path) -> Figures:
    """Run a measurement in a process that uses the code of that checkout."""
    command = [sys.executable, __file__, "--measure", name, "--directory", str(root)]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if found.returncode:
        sys.exit(f"{name}, {checkout}: {found.stderr}")
    figures: Figures = json.loads(found.stdout)
    return figures


def measure_here(name: str, root: Path) -> Figures:
    directory = Path(tempfile.mkdtemp(prefix="oncecast-bench-", dir=root))
    try:
        if name == "sync":
            return sync_floor(directory)
        with Node(directory) as node:
            return run(measure(name, node))
    finally:
        shutil.rmtree(directory)


def compare(checkouts: list[Path], names: list[str], rounds: int, root: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        results: list[list[Figures]] = [[] for _ in checkouts]
        for number in range(rounds):
            progress(f"{name}, round {number + 1} of {rounds}")
            for checkout, each in zip(checkouts, results, strict=True):
                each.append(measured(checkout, name, root))
        found[name] = {
            label: spread(each) for label, each in zip(("here", "beside"), results, strict=False)
        }
    return found


def spread(rounds: list[Figures]) -> dict[str, dict[str, float]]:
    columns = {key: [each[key] for each in rounds] for key in rounds[0]}
    return {
        key: {"median": median(each), "min": min(each), "max": max(each)}
        for key, each in columns.items()
    }


def progress(text: str) -> None:
    print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def show(results: dict[str, Any]) -> None:
    for name, row in results.items():
        for label, figures in row.items():
            columns = [
                f"{key} {each['median']:,.1f} ({each['min']:,.1f} to {each['max']:,.1f})"
                for key, each in figures.items()
            ]
            print(f"{name:<13} {label if len(row) > 1 else '':<7}", "  ".join(columns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--directory", type=Path, help="directory for temporary files, on the disk to measure"
    )
    parser.add_argument(
        "--beside", type=Path, help="another checkout to measure, alternating with this one"
    )
    parser.add_argument("--only", action="append", choices=[*MEASURES, "sync"])
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    root = arguments.directory or Path(tempfile.gettempdir())
    if arguments.measure:
        print(json.dumps(measure_here(arguments.measure, root)))
        return
    from bench.peers.comparing import conditions  # must not come from the other checkout

    checkouts = [HERE] + ([arguments.beside.resolve()] if arguments.beside else [])
    names = arguments.only or [*MEASURES, "sync"]
    results = compare(checkouts, names, arguments.rounds, root)
    progress("")
    about = conditions(0.0)
    if arguments.json:
        print(json.dumps({"conditions": about, **results}, indent=2))
    else:
        print(", ".join(f"{key} {value}" for key, value in about.items()))
        show(results)


if __name__ == "__main__":
    main()
