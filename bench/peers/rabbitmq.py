"""RabbitMQ: durable quorum queues, with publisher confirms."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.peers.peer import MANY, Get, Peer, Put, answers, free_port, program


class RabbitMQ(Peer):
    name = "RabbitMQ"
    setup = (
        "a durable quorum queue per subscriber behind a fan-out exchange, publisher confirms; "
        "aiormq: 1000 basic_publish at once; basic_consume with a prefetch of 2000, one ack for "
        "1000. Acks have no reply in AMQP, so the time ends with a round trip after the last ack"
    )
    share = 0.02
    modules = ("aiormq",)
    programs = ("rabbitmq-server", "epmd")

    def start(self, directory: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        names, distribution = free_port(), free_port()
        settings, plugins = directory / "rabbit.conf", directory / "plugins"
        settings.write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nvm_memory_high_watermark.relative = 0.6\n"
        )
        plugins.write_text("[].\n")
        environment = {
            "HOME": str(directory),  # where Erlang keeps its cookie
            "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_CONFIG_FILE": str(settings),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "logs"),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
        }
        register = self.run([program("epmd") or ""], directory / "epmd.log", environment)
        register.wait_until(lambda: answers(names))
        server = self.run([program("rabbitmq-server") or ""], directory / "log", environment)
        server.wait_until(lambda: answers(self.port))

    def version(self) -> str:
        banner = re.search(r"RabbitMQ (\d[\d.]*)", self.servers[-1].log.read_text())
        return f"{banner[1] if banner else '?'}, aiormq {version('aiormq')}"

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        """Open a connection, and yield a channel on it."""
        import aiormq

        connection = await aiormq.connect(f"amqp://guest:guest@127.0.0.1:{self.port}/")
        try:
            yield await connection.channel(publisher_confirms=True)
        finally:
            await connection.close()

    @asynccontextmanager
    async def exchange(self, channel: Any, queues: int = 1, name: str = "") -> AsyncIterator[str]:
        """Create an exchange, with queues that have its name and a number. Yield its name."""
        name = name or self.new_name()
        await channel.exchange_declare(name, exchange_type="fanout", durable=True)
        for number in range(queues):
            queue, kind = f"{name}-{number}", {"x-queue-type": "quorum"}
            await channel.queue_declare(queue, durable=True, arguments=kind)
            await channel.queue_bind(queue, name)
        yield name
        for number in range(queues):
            await channel.queue_delete(f"{name}-{number}")
        await channel.exchange_delete(name)

    async def put(self, values: list[bytes]) -> float:
        async with self.connect() as channel, self.exchange(channel) as exchange:
            began = perf_counter()
            await put_all(channel, exchange, values)
            return perf_counter() - began

    async def get(self, values: list[bytes]) -> float:
        async with self.connect() as channel, self.exchange(channel) as exchange:
            await put_all(channel, exchange, values)
            began = perf_counter()
            await get_all(channel, f"{exchange}-0", len(values))
            return perf_counter() - began

    async def fan_out(self, values: list[bytes], subscribers: int) -> float:
        async with AsyncExitStack() as context:
            publisher = await context.enter_async_context(self.connect())
            exchange = await context.enter_async_context(self.exchange(publisher, subscribers))
            channels = [
                await context.enter_async_context(self.connect()) for _ in range(subscribers)
            ]
            began = perf_counter()
            await asyncio.gather(
                put_all(publisher, exchange, values),
                *(
                    get_all(channel, f"{exchange}-{number}", len(values))
                    for number, channel in enumerate(channels)
                ),
            )
            return perf_counter() - began

    @asynccontextmanager
    async def subscriber(self, name: str) -> AsyncIterator[Get]:
        async with self.connect() as channel, self.exchange(channel, name=name):
            arrived: asyncio.Queue[float] = asyncio.Queue()

            async def hear(message: Any) -> None:
                arrived.put_nowait(perf_counter())
                await channel.basic_ack(message.delivery.delivery_tag, wait=False)

            consumer = await channel.basic_consume(f"{name}-0", hear)
            yield arrived.get
            await channel.basic_cancel(consumer.consumer_tag)

    @asynccontextmanager
    async def publisher(self, name: str) -> AsyncIterator[Put]:
        async with self.connect() as channel:
            yield partial(put_one, channel, name)

    async def publish(self, values: list[bytes], publishers: int) -> float:
        async with self.connect() as channel, self.exchange(channel) as exchange:

            async def work(share: list[bytes]) -> None:
                for value in share:
                    await put_one(channel, exchange, value)

            began = perf_counter()
            await asyncio.gather(*(work(values[at::publishers]) for at in range(publishers)))
            return perf_counter() - began


async def put_one(channel: Any, exchange: str, value: bytes) -> None:
    from aiormq import spec

    properties = spec.Basic.Properties(delivery_mode=2)
    await channel.basic_publish(value, exchange=exchange, properties=properties, wait=False)


async def put_all(channel: Any, exchange: str, values: list[bytes]) -> None:
    for start in range(0, len(values), MANY):
        await asyncio.gather(
            *(put_one(channel, exchange, value) for value in values[start : start + MANY])
        )


async def get_all(channel: Any, queue: str, count: int) -> None:
    done, left = asyncio.Event(), count

    async def hear(message: Any) -> None:
        nonlocal left
        left -= 1
        if left % MANY == 0:
            await channel.basic_ack(message.delivery.delivery_tag, multiple=True, wait=False)
        if left == 0:
            done.set()

    await channel.basic_qos(prefetch_count=2 * MANY)
    consumer = await channel.basic_consume(queue, hear)
    await done.wait()
    await channel.basic_cancel(consumer.consumer_tag)
