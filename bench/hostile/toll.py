"""Compare a node with TLS, users and rules to a node without them. They take turns."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter

import oncecast
from bench.hostile.storm import trips
from bench.hostile.targets import HONEST, KINDS, PASSWORD, ROOT, Target, running
from bench.peers.ours import get_all, put_all
from bench.peers.peer import say

ROUNDS = 5
RULES = 100  # number of rules for other users
PUT_MIN, GET_MIN, LATENCY_MAX = 0.8, 0.8, 1.3
VALUE = bytes(100)
READER = f"{HONEST}.reader"


@dataclass
class Toll:
    """Ratios of the secured node to the open node: the put rate, the get rate and the median
    latency."""

    put: list[float] = field(default_factory=list)
    get: list[float] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)
    rates: dict[str, list[float]] = field(default_factory=dict)

    @property
    def faults(self) -> list[str]:
        checks = (
            ("put", median(self.put) >= PUT_MIN),
            ("get", median(self.get) >= GET_MIN),
            ("latency", median(self.latency) <= LATENCY_MAX),
        )
        return [f"{name} misses its target with TLS and users" for name, ok in checks if not ok]


async def measure(target: Target, topic: str, messages: int, samples: int) -> tuple[float, ...]:
    """Return the put rate, the get rate, and the median seconds from put to get."""
    values = [VALUE] * messages
    async with target.honest() as client:
        await (await client.subscribe(topic, READER)).close()
        began = perf_counter()
        await put_all(client, topic, values)
        put = messages / (perf_counter() - began)
    async with target.honest() as client:
        began = perf_counter()
        await get_all(await client.read(topic, READER), messages)
        get = messages / (perf_counter() - began)
        await client.delete_topic(topic)
    async with target.honest() as publisher, target.honest() as subscriber:
        reading = await subscriber.subscribe(HONEST, HONEST)
        trip = median(await trips(publisher, reading, samples))
        await reading.close()
    return put, get, trip


async def add_rules(target: Target) -> None:
    async with oncecast.connect(
        target.address, tls=target.tls, user=ROOT, password=PASSWORD
    ) as root:
        for number in range(RULES):
            await root.access.allow(f"user{number}", "read", topic=f"topic{number}.*")


def toll(messages: int, samples: int, root: Path, rounds: int = ROUNDS) -> Toll:
    found = Toll()
    with running(KINDS[0], root / "toll") as open_node, running(KINDS[1], root / "toll") as secured:
        asyncio.run(add_rules(secured))
        for number in range(rounds + 1):
            rates = {
                target.kind.name: asyncio.run(measure(target, f"honest{number}", messages, samples))
                for target in (open_node, secured)
            }
            if not number:
                continue  # the first round does not count
            for name, (put, get, trip) in rates.items():
                for what, value in (("put", put), ("get", get), ("latency", trip)):
                    found.rates.setdefault(f"{name}: {what}", []).append(value)
            off, on = rates.values()
            found.put.append(on[0] / off[0])
            found.get.append(on[1] / off[1])
            found.latency.append(on[2] / off[2])
            say(
                f"  with TLS, users and rules: put {found.put[-1]:.2f}, get {found.get[-1]:.2f}, "
                f"latency {found.latency[-1]:.2f}"
            )
    return found
