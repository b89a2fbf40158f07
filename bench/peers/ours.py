"""oncecast: `oncecast serve` as a process, and the asynchronous client."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from time import perf_counter

import oncecast
from bench.peers.peer import MANY, Get, Peer, Put, answers, free_port


class Oncecast(Peer):
    name = "oncecast"
    setup = (
        "`oncecast serve` with default settings; put_nowait for each message, flush at the end; "
        "get_many(1000) with automatic acks, close at the end; 256 publishers: tasks that share "
        "a client"
    )
    share = 1.0

    def start(self, directory: Path) -> None:
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        server = self.run(self.command(self.address, directory / "data"), directory / "log")
        server.wait_until(lambda: answers(port))

    def command(self, address: str, data: Path) -> list[str | Path]:
        program = [sys.executable, "-m", "oncecast", "serve"]
        return [*program, "--listen", address, "--data", data]

    def version(self) -> str:
        return oncecast.__version__

    async def put(self, values: list[bytes]) -> float:
        topic = self.new_name()
        async with oncecast.connect(self.address) as client:
            await keep(client, topic)
            began = perf_counter()
            await put_all(client, topic, values)
            took = perf_counter() - began
            await client.delete_topic(topic)
        return took

    async def get(self, values: list[bytes]) -> float:
        topic = self.new_name()
        async with oncecast.connect(self.address) as client:
            await keep(client, topic)
            await put_all(client, topic, values)
        async with oncecast.connect(self.address) as client:
            began = perf_counter()
            reading = await client.read(topic, "reader")
            await get_all(reading, len(values))
            took = perf_counter() - began
            await client.delete_topic(topic)
        return took

    async def fan_out(self, values: list[bytes], subscribers: int) -> float:
        topic = self.new_name()
        async with AsyncExitStack() as clients:
            readings = []
            for number in range(subscribers):
                client = await clients.enter_async_context(oncecast.connect(self.address))
                readings.append(await client.subscribe(topic, f"reader{number}"))
            client = await clients.enter_async_context(oncecast.connect(self.address))
            began = perf_counter()
            await asyncio.gather(
                put_all(client, topic, values),
                *(get_all(reading, len(values)) for reading in readings),
            )
            took = perf_counter() - began
            await client.delete_topic(topic)
        return took

    @asynccontextmanager
    async def subscriber(self, name: str) -> AsyncIterator[Get]:
        async with oncecast.connect(self.address) as client:
            reading = await client.subscribe(name, "reader")

            async def get() -> float:
                await reading.get()
                return perf_counter()

            yield get
            await reading.close()
            await client.delete_topic(name)

    @asynccontextmanager
    async def publisher(self, name: str) -> AsyncIterator[Put]:
        async with oncecast.connect(self.address) as client:
            yield partial(client.put, name)

    async def publish(self, values: list[bytes], publishers: int) -> float:
        topic = self.new_name()
        async with oncecast.connect(self.address) as client:
            await keep(client, topic)

            async def work(share: list[bytes]) -> None:
                for value in share:
                    await client.put(topic, value)

            began = perf_counter()
            await asyncio.gather(*(work(values[at::publishers]) for at in range(publishers)))
            took = perf_counter() - began
            await client.delete_topic(topic)
        return took


async def keep(client: oncecast.Client, topic: str) -> None:
    """Create a subscription without a reader."""
    await (await client.subscribe(topic, "reader")).close()


async def put_all(client: oncecast.Client, topic: str, values: list[bytes]) -> None:
    for start in range(0, len(values), MANY):
        for value in values[start : start + MANY]:
            client.put_nowait(topic, value)
        await asyncio.sleep(0)  # let the loop send the messages
    await client.flush()


async def get_all(reading: oncecast.Subscription, count: int) -> None:
    while count:
        count -= len(await reading.get_many(MANY))
    await reading.close()
