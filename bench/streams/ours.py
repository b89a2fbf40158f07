"""Run streams of oncecast: each process joins, and awaits each sample."""

from __future__ import annotations

import asyncio
from time import perf_counter

import oncecast
from bench.streams.side import Counter, say, stamped
from bench.streams.stream_system import StreamSystem
from oncecast.coordination import KEEP_ALL, QoS, Reliability, join
from oncecast.network.network import run

STREAM = "bench"
PATIENCE = 30.0
QUALITIES = QoS(reliability=Reliability.RELIABLE, history=KEEP_ALL, blocking_max=PATIENCE)


class Oncecast(StreamSystem):
    name = "oncecast"
    setup = (
        "reliable, keep-all; await write(value) for each; reader.wait() and take(), or async for "
        "if the way is timed"
    )
    share = 1.0
    module = "ours"

    def version(self) -> str:
        return oncecast.__version__


def read(address: str, counter: Counter) -> None:
    async def main() -> None:
        async with join(address) as node:
            reader = node.stream(STREAM, QUALITIES).reader()
            say("ready")
            if counter.paced:
                async for sample in reader:
                    if counter.came(sample.value):
                        return
            while await reader.wait():
                for sample in reader.take():
                    if counter.came(sample.value):
                        return

    run(main())


def write(address: str, count: int, size: int, pause: float) -> None:
    async def main() -> None:
        async with join("127.0.0.1:0", peers=[address]) as node:
            writer = node.stream(STREAM, QUALITIES).writer()
            await writer.wait_for_readers(1, PATIENCE)
            value, began = bytes(size), perf_counter()
            for _ in range(count):
                if pause:
                    await asyncio.sleep(pause)
                    value = stamped(size)
                await writer.write(value)
            say(str(began))
            await asyncio.sleep(
                PATIENCE
            )  # wait for a signal, because the reader may still be reading

    run(main())
