"""Redis Streams: consumer groups, and an append-only file that is synced before every answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from time import perf_counter
from typing import Any

from bench.peers.peer import MANY, PAUSE, Get, Peer, Put, answers, free_port, program

WAIT_MS = 10_000


class Redis(Peer):
    name = "Redis"
    setup = (
        "appendonly, appendfsync always, no rewrite of the file during a run; redis-py with "
        "hiredis: XADD in pipelines of 1000; XREADGROUP of 1000 in one pipeline with the "
        "previous XACK; one thread per subscriber, which is faster than asyncio; 256 publishers: "
        "tasks that share a valkey-glide client, four times as fast as redis.asyncio"
    )
    share = 0.2
    modules = ("redis", "hiredis", "glide")
    programs = ("redis-server",)

    def start(self, directory: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        options = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": directory,
            "appendonly": "yes",
            "appendfsync": "always",
            "auto-aof-rewrite-percentage": 0,
            "save": "",
        }
        flags = [str(word) for key, value in options.items() for word in (f"--{key}", value)]
        server = self.run([program("redis-server") or "", *flags], directory / "log")
        server.wait_until(lambda: answers(self.port))

    def version(self) -> str:
        import redis

        with self.connect() as client:
            return f"{client.info('server')['redis_version']}, redis-py {redis.__version__}"

    def connect(self) -> Any:
        import redis

        return redis.Redis(port=self.port)

    async def put(self, values: list[bytes]) -> float:
        stream = self.new_name()
        with self.connect() as client:
            client.xgroup_create(stream, "reader", mkstream=True)
            began = perf_counter()
            put_all(client, stream, values)
            took = perf_counter() - began
            client.delete(stream)
        return took

    async def get(self, values: list[bytes]) -> float:
        stream = self.new_name()
        with self.connect() as client:
            client.xgroup_create(stream, "reader", mkstream=True)
            put_all(client, stream, values)
        with self.connect() as client:
            client.ping()
            began = perf_counter()
            get_all(client, stream, "reader", len(values))
            took = perf_counter() - began
            client.delete(stream)
        return took

    async def fan_out(self, values: list[bytes], subscribers: int) -> float:
        stream, threads = self.new_name(), []
        with ExitStack() as clients:
            publisher = clients.enter_context(self.connect())
            for number in range(subscribers):
                client, group = clients.enter_context(self.connect()), f"reader{number}"
                client.xgroup_create(stream, group, mkstream=True)
                work = partial(get_all, client, stream, group, len(values))
                threads.append(Thread(target=work, daemon=True))
            began = perf_counter()
            for each in threads:
                each.start()
            put_all(publisher, stream, values)
            for each in threads:
                each.join()
            took = perf_counter() - began
            publisher.delete(stream)
        return took

    @asynccontextmanager
    async def subscriber(self, name: str) -> AsyncIterator[Get]:
        with self.connect() as client:
            client.xgroup_create(name, "reader", mkstream=True)

            async def get() -> float:
                return arrival(client, name)

            yield get
            client.delete(name)

    @asynccontextmanager
    async def publisher(self, name: str) -> AsyncIterator[Put]:
        with self.connect() as client:

            async def put(value: bytes) -> None:
                client.xadd(name, {b"v": value})

            yield put

    async def trips(self, values: list[bytes]) -> list[float]:
        """Use a thread for the subscriber, because its calls block."""
        name, times = self.new_name(), []
        with (
            self.connect() as publisher,
            self.connect() as subscriber,
            ThreadPoolExecutor(1) as thread,
        ):
            subscriber.xgroup_create(name, "reader", mkstream=True)
            for value in values:
                getting = thread.submit(arrival, subscriber, name)
                await asyncio.sleep(PAUSE)  # by now, the subscriber is waiting
                began = perf_counter()
                publisher.xadd(name, {b"v": value})
                times.append(getting.result() - began)
            publisher.delete(name)
        return times

    async def publish(self, values: list[bytes], publishers: int) -> float:
        import glide

        stream = self.new_name()
        address = glide.NodeAddress("127.0.0.1", self.port)
        client = await glide.GlideClient.create(
            glide.GlideClientConfiguration([address], request_timeout=WAIT_MS)
        )

        async def work(share: list[bytes]) -> None:
            for value in share:
                await client.xadd(stream, [(b"v", value)])

        try:
            new = glide.StreamGroupOptions(make_stream=True)
            await client.xgroup_create(stream, "reader", "$", new)
            began = perf_counter()
            await asyncio.gather(*(work(values[at::publishers]) for at in range(publishers)))
            took = perf_counter() - began
            await client.delete([stream])
        finally:
            await client.close()
        return took


def arrival(client: Any, stream: str) -> float:
    answer = client.xreadgroup("reader", "me", {stream: ">"}, 1, block=WAIT_MS)
    at = perf_counter()
    client.xack(stream, "reader", entries(answer)[0][0])
    return at


def put_all(client: Any, stream: str, values: list[bytes]) -> None:
    for start in range(0, len(values), MANY):
        pipeline = client.pipeline(transaction=False)
        for value in values[start : start + MANY]:
            pipeline.xadd(stream, {b"v": value})
        pipeline.execute()


def get_all(client: Any, stream: str, group: str, count: int) -> None:
    done: list[bytes] = []
    while count or done:
        pipeline = client.pipeline(transaction=False)
        if done:
            pipeline.xack(stream, group, *done)
        if count:
            pipeline.xreadgroup(group, "me", {stream: ">"}, count=MANY, block=WAIT_MS)
        answer = pipeline.execute()[-1]
        done = [each for each, _ in entries(answer)] if count else []
        count -= len(done)


def entries(answer: Any) -> list[tuple[bytes, Any]]:
    """Return the messages of one stream, for either version of the wire protocol."""
    if not answer:
        return []
    found = next(iter(answer.values()))[0] if isinstance(answer, dict) else answer[0][1]
    return list(found)
