"""Measure how much an open console and 20 live tails slow the puts of a loaded node.

A node, the web process, 20 readers of Server-Sent Events, Chromium and the publisher share this
machine. Each round measures puts without and with the console: the browser shows the overview, and
the tails follow the topic that is being put to. The program prints medians over the rounds.

puts      puts of 100 B per second, by 64 tasks with one `await put` after the other;
          `--rate` limits all of them together
wait      median time of a put
node      processor time of the node for 1,000 puts

With `--apart`, the web process, the tails and the browser run at the lowest priority, as a stand-in
for another machine: they use only processor time that the node and the publisher leave.

    python bench/console.py [--json] [--rounds 5] [--seconds 4] [--tails 20]
                            [--rate 0] [--apart]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from threading import Thread
from time import perf_counter
from typing import NamedTuple

from oncecast.client.client import Client
from oncecast.network.network import run
from oncecast.wire.retention import Policy
from tools.browser import MISSING, find

TOPIC, VALUE = "load", b"x" * 100
TASKS = 64
KEPT_BYTES = 64 << 20
SETTLE = 1.0  # seconds before each measurement
LOWEST = 19
TICK = os.sysconf("SC_CLK_TCK")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
)
READ = """
import asyncio, sys
async def read(host, port):
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /api/v1/topics/load/tail HTTP/1.1\\r\\nHost: %b:%b\\r\\n\\r\\n"
                 % (host.encode(), port.encode()))
    while await reader.read(1 << 16):
        pass
async def main(count, host, port):
    await asyncio.gather(*(read(host, port) for _ in range(count)))
asyncio.run(main(int(sys.argv[1]), *sys.argv[2:]))
"""


class Figures(NamedTuple):
    puts: float  # per second
    wait: float  # milliseconds
    node: float  # milliseconds of processor time for 1,000 puts


def processor_time(process: int) -> float:
    """Return the seconds of processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


@contextlib.contextmanager
def program(*words: str, expect: str, low: bool = False) -> Iterator[tuple[int, str]]:
    """Run a program until the end of the block. Yield its id and what it prints about `expect`."""
    command = ["nice", "-n", str(LOWEST), *words] if low else list(words)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        found = None
        for line in process.stdout if expect else ():
            if found := re.search(expect, line):
                break
        if expect and not found:
            sys.exit(f"{' '.join(words)} ended before it printed {expect}")
        # A full pipe would stop the program.
        Thread(target=process.stdout.read, daemon=True).start()
        yield process.pid, found[1] if found else ""
    finally:
        process.terminate()
        process.wait(timeout=20)


@contextlib.contextmanager
def looking(server: str, tails: int, low: bool) -> Iterator[None]:
    """Open the console and the tails until the end of the block."""
    oncecast = (sys.executable, "-m", "oncecast", "web", "--listen", "127.0.0.1:0")
    browser = find()
    if browser is None:
        sys.exit(f"console: {MISSING}")
    with (
        tempfile.TemporaryDirectory() as profile,
        program(*oncecast, "--server", server, expect=r"http://(\S+)", low=low) as (_, web),
        program(sys.executable, "-c", READ, str(tails), *web.split(":"), expect="", low=low),
        program(
            browser,
            *FLAGS,
            f"--user-data-dir={profile}",
            "--remote-debugging-port=0",
            f"http://{web}/",
            expect="(DevTools) listening",
            low=low,
        ),
    ):
        yield


async def load(client: Client, node: int, seconds: float, rate: float) -> Figures:
    """Put for some seconds, and return the figures. A rate of 0 means as fast as possible."""
    waits: list[float] = []
    end = perf_counter() + SETTLE
    pause = TASKS / rate if rate else 0.0

    async def one() -> None:
        while (now := perf_counter()) < end:
            await client.put(TOPIC, VALUE)
            waits.append(perf_counter() - now)
            if pause:
                await asyncio.sleep(max(0.0, now + pause - perf_counter()))

    await asyncio.gather(*(one() for _ in range(TASKS)))
    waits.clear()
    used, began = processor_time(node), perf_counter()
    end = began + seconds
    await asyncio.gather(*(one() for _ in range(TASKS)))
    took, used = perf_counter() - began, processor_time(node) - used
    return Figures(len(waits) / took, median(waits) * 1000, used / len(waits) * 1e6)


async def measure(server: str, node: int, arguments: argparse.Namespace) -> list[list[Figures]]:
    """Return the figures without and with the console, for each round."""
    rounds = []
    async with Client(server) as client:
        await client.create_topic(TOPIC, Policy(bytes_max=KEPT_BYTES, drop_unread=True))
        for _ in range(arguments.rounds):
            alone = await load(client, node, arguments.seconds, arguments.rate)
            opened = contextlib.ExitStack()
            await asyncio.to_thread(
                opened.enter_context, looking(server, arguments.tails, arguments.apart)
            )
            try:
                watched = await load(client, node, arguments.seconds, arguments.rate)
                rounds.append([alone, watched])
            finally:
                await asyncio.to_thread(opened.close)
    return rounds


def report(rounds: list[list[Figures]]) -> dict[str, float]:
    names = Figures._fields
    found = {}
    for name in names:
        alone, watched = ([getattr(each[at], name) for each in rounds] for at in (0, 1))
        found[f"{name}_alone"], found[f"{name}_watched"] = median(alone), median(watched)
        change = median(after / before for before, after in zip(alone, watched, strict=True))
        found[f"{name}_change_percent"] = 100 * (change - 1)
    return {name: round(value, 2) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--tails", type=int, default=20)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--apart", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as data:
        serve = (sys.executable, "-m", "oncecast", "serve", "--listen", "127.0.0.1:0")
        with program(*serve, "--data", data, expect=r"listening at=(\S+)") as (node, server):
            figures = report(run(measure(server, node, arguments)))
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, unit in (("puts", "/s"), ("wait", "ms"), ("node", "ms per 1,000 puts")):
        alone, watched = figures[f"{name}_alone"], figures[f"{name}_watched"]
        change = figures[f"{name}_change_percent"]
        print(f"{name:<6}{alone:>12,.2f}{watched:>12,.2f} {unit:<18}{change:+7.1f}%")


if __name__ == "__main__":
    main()
