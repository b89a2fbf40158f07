"""Compare taking elements with Redis lists in one run; see docs/benchmarks.md.

python -m bench.queues.beside [--only take] [--rounds 5] [--messages 20000]
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from time import perf_counter

import oncecast
from bench.peers.comparing import compare
from bench.peers.measures import Measure
from bench.peers.peer import System, answers, free_port
from bench.peers.redis_streams import Redis
from oncecast.coordination import join

KEEPERS = 3
AT_ONCE = 64
PATIENCE = 30.0


class Oncecast(System):
    name = "oncecast"
    setup = (
        "three `oncecast keep` with disks, a majority of which agrees on each element; "
        "dequeue() for each, one or 64 at a time"
    )
    share = 1.0

    def start(self, directory: Path) -> None:
        ports = [free_port() for _ in range(KEEPERS)]
        self.peers = [f"127.0.0.1:{port}" for port in ports]
        for port, address in zip(ports, self.peers, strict=True):
            command = [sys.executable, "-m", "oncecast", "keep", "--listen", address]
            command += ["--peers", ",".join(self.peers), "--data", str(directory / str(port))]
            self.run(command, directory / f"{port}.log").wait_until(partial(answers, port))

    def version(self) -> str:
        return oncecast.__version__

    async def take(self, values: list[bytes], at_once: int) -> float:
        name = self.new_name()
        async with join("127.0.0.1:0", peers=self.peers) as node:
            await node.group.wait_for_view_size(KEEPERS + 1, PATIENCE)
            queue = node.queue(name)
            for value in values:
                await queue.enqueue(value)
            async with asyncio.timeout(PATIENCE):
                while len(queue) < len(values):  # noqa: ASYNC110  # a queue tells nobody
                    await asyncio.sleep(0.01)

            async def work() -> None:
                while await queue.dequeue() is not None:
                    pass

            began = perf_counter()
            await asyncio.gather(*(work() for _ in range(at_once)))
            return perf_counter() - began


class RedisLists(Redis):
    setup = "appendonly, appendfsync always; redis-py: BLMOVE for each, alone or in pipelines of 64"
    share = 1.0

    async def take(self, values: list[bytes], at_once: int) -> float:
        name = self.new_name()
        with self.connect() as client:
            client.rpush(name, *values)
            began = perf_counter()
            for start in range(0, len(values), at_once):
                pipeline = client.pipeline(transaction=False)
                for _ in values[start : start + at_once]:
                    pipeline.blmove(name, f"{name}-taken", 1)
                pipeline.execute()
            took = perf_counter() - began
            client.delete(name, f"{name}-taken")
        return took


async def take(system: Oncecast | RedisLists, values: list[bytes]) -> float:
    return len(values) / await system.take(values, 1)


async def take_many(system: Oncecast | RedisLists, values: list[bytes]) -> float:
    return len(values) / await system.take(values, AT_ONCE)


MEASURES = (
    Measure("take", "take, one at a time, 100 B", "elements/s", take, 0.1, alike=True),
    Measure(
        "take-many", f"take, {AT_ONCE} at a time, 100 B", "elements/s", take_many, 1.0, alike=True
    ),
)

if __name__ == "__main__":
    sys.exit(compare("bench.queues.beside", __doc__ or "", (Oncecast, RedisLists), MEASURES))
