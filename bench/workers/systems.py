"""The systems whose workers are compared. Each syncs a settlement before it confirms it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import oncecast
from bench.peers import nats_jetstream, ours, rabbitmq, redis_streams
from bench.peers.redis_streams import entries
from bench.workers.crew import PREFETCH, Go, Tally, Workshop

WAIT_MS = 1000  # milliseconds for which a worker waits for jobs
GROUP = "workers"


class Oncecast(ours.Oncecast, Workshop):
    setup = (
        "`oncecast serve` with default settings; a shared subscription; one at a time: a prefetch "
        "of 16, ack() for each job, flush() in the background; batches: 100 jobs, then flush()"
    )

    async def fill(self, name: str, values: list[bytes]) -> None:
        async with oncecast.connect(self.address) as client:
            await client.create_subscription(name, GROUP, shared=oncecast.Shared())
            await ours.put_all(client, name, values)

    async def clear(self, name: str) -> None:
        async with oncecast.connect(self.address) as client:
            await client.delete_topic(name)

    async def work(self, name: str, batch: int, number: int, go: Go, tally: Tally) -> None:
        async with oncecast.connect(self.address) as client:
            await client.ping()
            await go()
            prefetch = PREFETCH if batch == 1 else 2 * batch
            jobs = await client.work(name, GROUP, prefetch=prefetch, create=False)
            if batch == 1:
                await self._one_by_one(jobs, partial(tally.add, number))
            while True:
                tally.add(number, await self._batch(jobs, batch))

    async def _one_by_one(self, jobs: oncecast.SharedSubscription, add: Any) -> None:
        acked = counted = 0
        some = asyncio.Event()

        async def count() -> None:
            nonlocal counted
            while True:
                await some.wait()
                some.clear()
                upto = acked
                await jobs.flush()
                add(upto - counted)
                counted = upto

        counting = asyncio.ensure_future(count())
        async for job in jobs:
            job.ack()
            acked += 1
            some.set()
        await counting

    async def _batch(self, jobs: oncecast.SharedSubscription, batch: int) -> int:
        """Handle up to this many jobs. Return their number once the node has stored the acks."""
        job, count = await jobs.get(), 0
        while job is not None:
            job.ack()
            count += 1
            job = await jobs.get(timeout=0) if count < batch else None
        await jobs.flush()
        return count


class Redis(redis_streams.Redis, Workshop):
    setup = (
        "appendonly, appendfsync always, no rewrite of the file during a run; a consumer group; "
        "redis-py with hiredis; one at a time: XREADGROUP of 16 in one pipeline with an XACK for "
        "each of the previous 16; batches: XREADGROUP of 100, with one XACK for the previous 100"
    )
    share = 0.3

    async def fill(self, name: str, values: list[bytes]) -> None:
        with self.connect() as client:
            client.xgroup_create(name, GROUP, mkstream=True)
            redis_streams.put_all(client, name, values)

    async def clear(self, name: str) -> None:
        with self.connect() as client:
            client.delete(name)

    async def work(self, name: str, batch: int, number: int, go: Go, tally: Tally) -> None:
        with self.connect() as client:
            client.ping()
            await go()
            want = PREFETCH if batch == 1 else batch
            ids: list[bytes] = []
            while True:
                pipeline = client.pipeline(transaction=False)
                groups = [ids] if batch > 1 and ids else [[each] for each in ids]
                for each in groups:
                    pipeline.xack(name, GROUP, *each)
                last = 0 < len(ids) < want  # a read could wait, and hide that the acks are stored
                if not last:
                    pipeline.xreadgroup(GROUP, number, {name: ">"}, count=want, block=WAIT_MS)
                answers = pipeline.execute()
                tally.add(number, len(ids))
                ids = [] if last else [each for each, _ in entries(answers[-1])]


class Nats(nats_jetstream.Nats, Workshop):
    setup = (
        "JetStream, file storage, sync_interval always, retention work queue; nats-py: a durable "
        "pull consumer with explicit acks that all workers share; one at a time: fetch 16; "
        "batches: fetch 100; each ack waits for its reply, all acks of a fetch at once"
    )
    share = 0.02

    async def fill(self, name: str, values: list[bytes]) -> None:
        from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy

        async with self.connect() as stream:
            retention = RetentionPolicy.WORK_QUEUE
            await stream.add_stream(name=name, subjects=[name], retention=retention)
            config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=100_000)
            await stream.pull_subscribe(name, durable=GROUP, config=config)
            await nats_jetstream.put_all(stream, name, values)

    async def clear(self, name: str) -> None:
        async with self.connect() as stream:
            await stream.delete_stream(name)

    async def work(self, name: str, batch: int, number: int, go: Go, tally: Tally) -> None:
        from nats.errors import TimeoutError as NoMessages

        async with self.connect() as stream:
            reading = await stream.pull_subscribe_bind(durable=GROUP, stream=name)
            await go()
            while True:
                try:
                    messages = await reading.fetch(PREFETCH if batch == 1 else batch, timeout=1)
                except NoMessages:
                    continue
                await asyncio.gather(*(each.ack_sync() for each in messages))
                tally.add(number, len(messages))


class RabbitMQ(rabbitmq.RabbitMQ, Workshop):
    setup = (
        "a durable quorum queue, publisher confirms; aiormq; one at a time: a prefetch of 16, "
        "basic_ack for each job; batches: a prefetch of 200, one ack for 100 jobs. Acks have no "
        "reply in AMQP, so a job counts once its ack is sent"
    )
    share = 0.05

    async def fill(self, name: str, values: list[bytes]) -> None:
        async with self.connect() as channel:
            await channel.exchange_declare(name, exchange_type="fanout", durable=True)
            kind = {"x-queue-type": "quorum"}
            await channel.queue_declare(name, durable=True, arguments=kind)
            await channel.queue_bind(name, name)
            await rabbitmq.put_all(channel, name, values)

    async def clear(self, name: str) -> None:
        async with self.connect() as channel:
            await channel.queue_delete(name)
            await channel.exchange_delete(name)

    async def work(self, name: str, batch: int, number: int, go: Go, tally: Tally) -> None:
        async with self.connect() as channel:
            arrived: asyncio.Queue[int] = asyncio.Queue()

            async def hear(message: Any) -> None:
                arrived.put_nowait(message.delivery.delivery_tag)

            await channel.basic_qos(prefetch_count=PREFETCH if batch == 1 else 2 * batch)
            await go()
            await channel.basic_consume(name, hear)
            while True:
                count, tag = 1, await arrived.get()
                while count < batch and not arrived.empty():
                    count, tag = count + 1, arrived.get_nowait()
                await channel.basic_ack(tag, multiple=batch > 1, wait=False)
                tally.add(number, count)
