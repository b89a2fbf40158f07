"""Measure the lower bound of put-to-get latency, with plain sockets and one fdatasync.

A small server reads 200 B, writes them to a preallocated file and syncs it. Then it sends 200 B to
a second connection and 40 B back to the first, as a node does for one message. A client has both
connections. Both run on uvloop, or on the asyncio loop with --asyncio.

    python bench/floor.py [--trips 1000] [--directory DIR] [--asyncio]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import perf_counter
from typing import Any, cast

from bench.peers.comparing import conditions
from oncecast.network.network import run

MESSAGE, ANSWER = bytes(200), bytes(40)
PAUSE = 0.001  # seconds between trips, as in bench/peers
FILE_BYTES = 16 * 1024 * 1024

Runner = Callable[[Coroutine[Any, Any, Any]], Any]


class Server(asyncio.Protocol):
    """Server for two connections: the first puts messages, and the second waits for them."""

    def __init__(self, fd: int, others: list[asyncio.Transport], *, sync: bool) -> None:
        self._fd, self._others, self._sync, self._at = fd, others, sync, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._others.append(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        putter, waiter = self._others
        if self._sync:
            os.pwrite(self._fd, data, self._at % FILE_BYTES)
            os.fdatasync(self._fd)
            self._at += len(data)
        waiter.write(MESSAGE)
        putter.write(ANSWER)


async def serve(directory: Path, *, sync: bool) -> None:
    fd = os.open(directory / "floor", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, FILE_BYTES + len(MESSAGE))
    os.fsync(fd)
    others: list[asyncio.Transport] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Server(fd, others, sync=sync), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class Side(asyncio.Protocol):
    def __init__(self) -> None:
        self.came: asyncio.Future[None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self.came.done():
            self.came.set_result(None)


async def trips(port: int, count: int) -> list[float]:
    loop = asyncio.get_running_loop()
    _, putter = await loop.create_connection(Side, "127.0.0.1", port)
    await asyncio.sleep(0.1)  # let the server accept the first connection
    _, waiter = await loop.create_connection(Side, "127.0.0.1", port)
    times = []
    for _ in range(count):
        putter.came, waiter.came = loop.create_future(), loop.create_future()
        await asyncio.sleep(PAUSE)
        start = perf_counter()
        putter.transport.write(MESSAGE)
        await waiter.came
        times.append(perf_counter() - start)
        await putter.came
    return times


def measure(count: int, directory: Path, mine: list[str], *, sync: bool, runner: Runner) -> None:
    command = [sys.executable, __file__, "--serve", *mine, "--directory", str(directory)]
    with subprocess.Popen(
        [*command, *(["--sync"] if sync else [])], stdout=subprocess.PIPE
    ) as node:
        assert node.stdout is not None
        try:
            times = sorted(runner(trips(int(node.stdout.readline()), count)))
        finally:
            node.kill()
    print(", ".join(f"{key} {value}" for key, value in conditions(PAUSE).items()))
    shown = [f"p{part} {times[count * part // 100] * 1e6:,.0f}" for part in (5, 25, 50, 90, 99)]
    print(f"{'with a sync' if sync else 'sockets only':<13} us", "  ".join(shown))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trips", type=int, default=1000)
    parser.add_argument(
        "--directory", type=Path, help="directory for temporary files, on the disk to measure"
    )
    parser.add_argument(
        "--asyncio", action="store_true", help="use asyncio's event loop instead of uvloop"
    )
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--sync", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    runner: Runner = asyncio.run if arguments.asyncio else run
    if arguments.serve:
        runner(serve(arguments.directory, sync=arguments.sync))
        return
    mine = ["--asyncio"] if arguments.asyncio else []
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        for sync in (False, True):
            measure(arguments.trips, Path(directory), mine, sync=sync, runner=runner)


if __name__ == "__main__":
    main()
