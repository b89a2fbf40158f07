"""NATS JetStream: a file stream that is synced before every ack, and durable consumers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from subprocess import run
from time import perf_counter
from typing import Any

from bench.peers.peer import MANY, Get, Peer, Put, answers, free_port, program


class Nats(Peer):
    name = "NATS"
    setup = (
        "JetStream, file storage, sync_interval always; nats-py: publish_async, 4000 in flight; "
        "durable pull consumers that fetch 1000 and acknowledge all with the last (ack all); "
        "only the last ack has a reply; put to get: a push consumer; 256 publishers: publish"
    )
    share = 0.01
    replicas = 1
    modules = ("nats",)
    programs = ("nats-server",)

    def start(self, directory: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        settings = directory / "nats.conf"
        settings.write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f'jetstream {{ store_dir: "{directory}", sync_interval: always }}\n'
        )
        server = self.run([program("nats-server") or "", "-c", settings], directory / "log")
        server.wait_until(lambda: answers(self.port))

    def version(self) -> str:
        command = [program("nats-server") or "", "--version"]
        said = run(command, capture_output=True, text=True, check=True).stdout
        return f"{said.split()[-1].lstrip('v')}, nats-py {version('nats-py')}"

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        import nats

        connection = await nats.connect(f"nats://127.0.0.1:{self.port}")
        try:
            yield connection.jetstream()
        finally:
            await connection.close()

    async def put(self, values: list[bytes]) -> float:
        async with self.connect() as stream, self.stream(stream) as subject:
            await consumer(stream, subject, "reader")
            began = perf_counter()
            await put_all(stream, subject, values)
            return perf_counter() - began

    async def get(self, values: list[bytes]) -> float:
        async with self.connect() as stream, self.stream(stream) as subject:
            reading = await consumer(stream, subject, "reader")
            await put_all(stream, subject, values)
            began = perf_counter()
            await get_all(reading, len(values))
            return perf_counter() - began

    async def fan_out(self, values: list[bytes], subscribers: int) -> float:
        async with AsyncExitStack() as context:
            publisher = await context.enter_async_context(self.connect())
            subject = await context.enter_async_context(self.stream(publisher))
            readings = []
            for number in range(subscribers):
                stream = await context.enter_async_context(self.connect())
                readings.append(await consumer(stream, subject, f"reader{number}"))
            began = perf_counter()
            await asyncio.gather(
                put_all(publisher, subject, values),
                *(get_all(reading, len(values)) for reading in readings),
            )
            return perf_counter() - began

    @asynccontextmanager
    async def subscriber(self, name: str) -> AsyncIterator[Get]:
        async with self.connect() as stream, self.stream(stream, name):
            reading = await stream.subscribe(name, durable="reader", manual_ack=True)

            async def get() -> float:
                message = await reading.next_msg(timeout=10)
                at = perf_counter()
                await message.ack()
                return at

            yield get

    @asynccontextmanager
    async def publisher(self, name: str) -> AsyncIterator[Put]:
        async with self.connect() as stream:
            yield partial(stream.publish, name)

    async def publish(self, values: list[bytes], publishers: int) -> float:
        async with self.connect() as stream, self.stream(stream) as subject:

            async def work(share: list[bytes]) -> None:
                for value in share:
                    await stream.publish(subject, value)

            await consumer(stream, subject, "reader")
            began = perf_counter()
            await asyncio.gather(*(work(values[at::publishers]) for at in range(publishers)))
            return perf_counter() - began

    @asynccontextmanager
    async def stream(self, stream: Any, name: str = "") -> AsyncIterator[str]:
        """Create a stream with one subject, and yield the name of both."""
        name = name or self.new_name()
        await stream.add_stream(name=name, subjects=[name], num_replicas=self.replicas)
        yield name
        await stream.delete_stream(name)


async def consumer(stream: Any, subject: str, name: str) -> Any:
    from nats.js.api import AckPolicy, ConsumerConfig

    config = ConsumerConfig(ack_policy=AckPolicy.ALL, max_ack_pending=10 * MANY)
    return await stream.pull_subscribe(subject, durable=name, config=config)


async def put_all(stream: Any, subject: str, values: list[bytes]) -> None:
    for value in values:
        await stream.publish_async(subject, value)
    await stream.publish_async_completed()


async def get_all(reading: Any, count: int) -> None:
    while count:
        messages = await reading.fetch(min(MANY, count), timeout=10)
        count -= len(messages)
        if count:
            await messages[-1].ack()
        else:
            await messages[-1].ack_sync()
