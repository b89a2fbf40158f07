"""Measure latency with publisher and subscriber in separate processes.

python -m bench.peers.apart MODULE CLASS ADDRESS publish|subscribe TOPIC COUNT SIZE PIPE

The subscriber writes a byte to the pipe when it waits for a message. The publisher reads that byte,
pauses, and puts the next message, so no message waits behind another. At the end, both print the
times of all their messages. The subscriber deletes the topic at the end of its input. All processes
on a machine share one clock.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from bench.peers.peer import PAUSE, Failed, Peer
from oncecast.network.network import run

HERE = Path(__file__).resolve().parent.parent.parent
WARM_UP = 20  # number of warm-up messages, which are not counted
WITHIN = 60.0  # maximum seconds that one process may take


async def trips(peer: Peer, values: list[bytes]) -> list[float]:
    """Return the seconds from each put in one process until another process has the message."""
    name, count = peer.new_name(), str(len(values) + WARM_UP)
    words, (reading, writing) = (name, count, str(len(values[0]))), os.pipe()
    try:
        with (
            side(peer, writing, "subscribe", *words) as subscriber,
            side(peer, reading, "publish", *words) as publisher,
        ):
            puts, arrivals = await line_of(publisher), await line_of(subscriber)
            await asyncio.to_thread(subscriber.communicate, "")
    finally:
        os.close(reading)
        os.close(writing)
    both = zip(json.loads(puts), json.loads(arrivals), strict=True)
    return [arrived - put for put, arrived in both][WARM_UP:]


@contextmanager
def side(peer: Peer, pipe: int, role: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    kind = type(peer)
    program = [sys.executable, "-m", "bench.peers.apart", kind.__module__, kind.__qualname__]
    process = subprocess.Popen(
        [*program, peer.address, role, *words, str(pipe)],
        cwd=HERE,
        pass_fds=(pipe,),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), WITHIN)
    except TimeoutError:
        process.kill()
        line = ""
    if not line:
        raise Failed(f"{process.args!r} failed, or took more than {WITHIN:g} s")
    return line


async def subscribe(peer: Peer, name: str, count: int, size: int, pipe: int) -> None:
    times = []
    async with peer.subscriber(name) as get:
        for _ in range(count):
            os.write(pipe, b"+")
            times.append(await get())
        print(json.dumps(times), flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def publish(peer: Peer, name: str, count: int, size: int, pipe: int) -> None:
    value, times = bytes(size), []
    os.read(pipe, 1)
    async with peer.publisher(name) as put:
        for number in range(count):
            if number:
                os.read(pipe, 1)
            await asyncio.sleep(PAUSE)
            times.append(perf_counter())
            await put(value)
    print(json.dumps(times), flush=True)


def main(module: str, kind: str, address: str, role: str, name: str, *numbers: str) -> None:
    peer: Peer = getattr(importlib.import_module(module), kind)()
    peer.address = address
    side_of = subscribe if role == "subscribe" else publish
    run(side_of(peer, name, *map(int, numbers)))


if __name__ == "__main__":
    main(*sys.argv[1:])
