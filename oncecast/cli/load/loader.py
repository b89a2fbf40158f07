"""The producers and subscribers of `oncecast load`, and their audit."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import time
from collections import Counter
from contextlib import AsyncExitStack
from random import Random
from typing import IO, TYPE_CHECKING, Any

from oncecast.cli.connecting import client_of, complain, named_client, show
from oncecast.cli.load.audit import Reading, id_of, value_of
from oncecast.cli.progress import Progress
from oncecast.client.starts import NEW
from oncecast.errors import ExitStatus
from oncecast.spark.audit.trace import Trace

if TYPE_CHECKING:
    from oncecast.client.client import Client
    from oncecast.client.subscription import Subscription
    from oncecast.wire.message import Message

IN_FLIGHT = 256  # maximum puts in flight per producer
IN_FLIGHT_BYTES = 32 * 1024 * 1024
MANY = 200  # fraction of gets after which the reader requests the same messages again
AGAIN = 0.02  # fraction of gets after which the reader disconnects without an ack
LEAVE = 0.01  # fraction of gets after which the reader subscribes again
RESUBSCRIBE = 0.01  # share of gets after which the reader subscribes again


class Load:
    def __init__(self, arguments: argparse.Namespace, trace: IO[str] | None) -> None:
        self.arguments = arguments
        self._run = secrets.token_hex(4)  # makes topic names unique
        self._log = None if trace is None else Trace(trace, f"load-{self._run}", "load")
        self._sessions: dict[tuple[str, str], int] = {}  # current session of each subscription
        self._attached = 0  # number of sessions so far
        topics = [f"load-{self._run}-{number}" for number in range(arguments.topics)]
        rng = Random(f"{arguments.seed} puts")
        shares = [
            range(at, arguments.publishes, arguments.producers) for at in range(arguments.producers)
        ]
        self.plans = [[rng.choice(topics) for _ in share] for share in shares]
        self.totals = dict.fromkeys(topics, 0)
        self.totals.update(Counter(topic for plan in self.plans for topic in plan))
        self.readings: dict[tuple[str, str], Reading] = {}
        self.put_at: dict[tuple[str, str, int], float] = {}  # by topic, producer and sequence
        self.put_times: list[float] = []
        self.get_times: list[float] = []
        self.putting = arguments.producers  # producers still running
        self.took_putting = 0.0

    async def run(self, client: Client) -> int:
        for topic in self.totals:
            await client.create_topic(topic)
            self._trace("create", client, {"topic": topic, "drop_unread": False})
        self.began = time.monotonic()
        steps = self.arguments.publishes * (1 + self.arguments.subscribers)
        with Progress("load", steps) as self.progress:
            try:
                await self._traced()
            except asyncio.CancelledError:
                # After Ctrl-C, the subscriptions would keep messages forever.
                await self._tidy(client)
                raise
        took = time.monotonic() - self.began
        for (topic, _), reading in self.readings.items():
            reading.end(self.totals[topic])
        await self._tidy(client)
        return self._report(took)

    async def _tidy(self, client: Client) -> None:
        if not self.arguments.keep:
            for topic in self.totals:
                await client.delete_topic(topic)

    async def _traced(self) -> None:
        """Run all clients and complete their trace."""
        complete = False
        try:
            await self._all()
            complete = True
        finally:
            if self._log is not None:
                self._log.end(complete=complete)

    async def _all(self) -> None:
        """Run all clients, each with its own connection, until the first failure."""
        try:
            async with AsyncExitStack() as clients, asyncio.TaskGroup() as tasks:
                for topic in self.totals:
                    for number in range(self.arguments.subscribers):
                        name = f"s{number}"
                        client = await clients.enter_async_context(client_of(self.arguments))
                        self.readings[topic, name] = Reading()
                        subscription = await self._subscribe(client, topic, name)
                        tasks.create_task(self._read(client, subscription))
                for number, plan in enumerate(self.plans):
                    name = f"load-{self._run}-p{number}"
                    client = await clients.enter_async_context(named_client(self.arguments, name))
                    tasks.create_task(self._produce(client, plan))
        except BaseExceptionGroup as group:
            raise first_of(group) from None

    # -- producers --

    async def _produce(self, client: Client, plan: list[str]) -> None:
        slots = asyncio.Semaphore(max(1, min(IN_FLIGHT, IN_FLIGHT_BYTES // self.arguments.size)))
        sequences = Counter[str]()
        rate = self.arguments.rate / self.arguments.producers
        async with asyncio.TaskGroup() as puts:
            for number, topic in enumerate(plan):
                if rate:
                    await asyncio.sleep(self.began + number / rate - time.monotonic())
                await slots.acquire()
                puts.create_task(self._put(client, topic, sequences[topic], slots))
                sequences[topic] += 1
        self.putting -= 1
        self.took_putting = time.monotonic() - self.began

    async def _put(
        self, client: Client, topic: str, sequence: int, slots: asyncio.Semaphore
    ) -> None:
        fields = {"topic": topic, "producer": client.name, "sequence": sequence}
        value = value_of(client.name, sequence, self.arguments.size)
        asked = self.put_at[topic, client.name, sequence] = time.monotonic()
        self._trace("put", client, fields)
        receipt = await client.put(topic, value, timeout=self.arguments.timeout)
        self.put_times.append(time.monotonic() - asked)
        self._trace("stored", client, {**fields, "offset": receipt.offset})
        self.progress.step()
        slots.release()

    # -- subscribers --

    async def _subscribe(self, client: Client, topic: str, name: str) -> Subscription:
        made = await client.create_subscription(topic, name, start=NEW)
        self.progress.step(by=self.readings[topic, name].resubscribe(made.offset))
        self._trace("subscribe", client, position(topic, name, made.offset))
        return await self._attach(client, topic, name)

    async def _attach(self, client: Client, topic: str, name: str) -> Subscription:
        reader = await client.read(topic, name, auto_ack=False, push=self.arguments.push)
        if self._log is not None:
            await asyncio.wait_for(reader.ready(), self.arguments.timeout)
            self._attached += 1
            self._sessions[topic, name] = self._attached
            self._trace("attach", client, self._at(topic, name, reader.start))
        return reader

    def _at(self, topic: str, name: str, offset: int) -> dict[str, Any]:
        """Return the trace fields for the current session."""
        return {**position(topic, name, offset), "session": self._sessions.get((topic, name), 0)}

    async def _read(self, client: Client, subscription: Subscription) -> None:
        topic, name = subscription.topic, subscription.name
        rng = Random(f"{self.arguments.seed} {name} {topic.rsplit('-', 1)[1]}")
        reading, acked = self.readings[topic, name], 0
        while acked < self.totals[topic]:
            count = rng.choice((1, rng.randint(1, MANY)))
            messages = await subscription.get_many(count, self.arguments.timeout)
            if not messages and not self.putting:
                return  # the audit reports the rest as lost
            for message in messages:
                self._delivered(client, subscription, reading, message)
            if not messages:
                continue
            chance = rng.random()
            if chance < LEAVE:
                await subscription.close(ack=False)
                reading.rewind(acked)
                self._trace("leave", client, self._at(topic, name, acked))
                subscription = await self._attach(client, topic, name)
            elif chance < LEAVE + RESUBSCRIBE:
                await client.unsubscribe(topic, name)
                self._trace("unsubscribe", client, position(topic, name, acked))
                subscription = await self._subscribe(client, topic, name)
                acked = reading.next
            else:
                again = chance < LEAVE + RESUBSCRIBE + AGAIN
                done = rng.randrange(len(messages)) if again else len(messages)
                acked = self._settle(client, subscription, messages, done, acked)
        await subscription.flush(self.arguments.timeout)
        self._trace("flushed", client, self._at(topic, name, acked - 1))

    def _settle(
        self,
        client: Client,
        subscription: Subscription,
        messages: list[Message],
        done: int,
        acked: int,
    ) -> int:
        """Acknowledge `done` messages and request the rest again. Return the next offset."""
        topic, name = subscription.topic, subscription.name
        if done:
            subscription.ack(messages[done - 1])
            acked = messages[done - 1].offset + 1
            self._trace("ack", client, self._at(topic, name, acked - 1))
        if done < len(messages):
            subscription.nack(messages[done])
            self.readings[topic, name].rewind(acked)
            self._trace("nack", client, self._at(topic, name, acked))
        return acked

    def _delivered(
        self, client: Client, subscription: Subscription, reading: Reading, message: Message
    ) -> None:
        if reading.deliver(message):
            put_at = self.put_at.get((message.topic, message.producer, message.sequence))
            if put_at is not None:
                self.get_times.append(time.monotonic() - put_at)
            self.progress.step()
        if self._log is not None:
            producer, sequence = id_of(message.value)
            fields: dict[str, Any] = {"producer": producer, "sequence": sequence}
            fields |= self._at(subscription.topic, subscription.name, message.offset)
            self._trace("delivery", client, {**fields, "redelivered": message.redelivered})

    # -- trace and report --

    def _trace(self, kind: str, client: Client, fields: dict[str, Any]) -> None:
        if self._log is not None:
            node = client.node_of(fields["topic"])
            self._log.write(kind, client=client.name, node=node, **fields)

    def _report(self, took: float) -> int:
        readings = self.readings.values()
        forgone = sum(each.forgone for each in readings)
        delivered = sum(each.seen for each in readings) - forgone
        faults = {
            "lost": sum(each.lost for each in readings),
            "duplicated": sum(each.duplicated for each in readings),
            "out_of_order": sum(each.out_of_order for each in readings),
        }
        fields = {
            "seed": self.arguments.seed,
            "puts": len(self.put_times),
            "deliveries": delivered,
            "forgone": forgone,
            "asked_again": sum(each.redelivered for each in readings),
            "seconds": round(took, 3),
            "puts_per_s": round(len(self.put_times) / max(self.took_putting, 1e-9)),
            "deliveries_per_s": round(delivered / max(took, 1e-9)),
            "put_ms": spread(self.put_times),
            "put_to_get_ms": spread(self.get_times),
            **faults,
        }
        show(self.arguments, fields, "\n".join(map(in_words, fields.items())))
        if any(faults.values()):
            return complain(
                "messages were lost, duplicated or reordered; keep the data directory for analysis"
            )
        return ExitStatus.OK


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error in a nested group."""
    error = group.exceptions[0]
    return first_of(error) if isinstance(error, BaseExceptionGroup) else error


def position(topic: str, subscription: str, offset: int) -> dict[str, Any]:
    return {"topic": topic, "subscription": subscription, "offset": offset}


def spread(times: list[float]) -> dict[str, float]:
    ordered = sorted(times) or [0.0]
    quantiles = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    last = len(ordered) - 1
    return {name: round(ordered[int(last * at)] * 1e3, 3) for name, at in quantiles.items()}


def in_words(field: tuple[str, Any]) -> str:
    name, value = field
    if isinstance(value, dict):
        value = "   ".join(f"{each} {figure:g}" for each, figure in value.items())
    return f"{name.replace('_', ' '):<18}{value}"
