"""Run oncecast as a ring of three processes; each has a group and a replica of all groups."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter

import oncecast
from bench.peers.ours import Oncecast, get_all, put_all
from bench.peers.peer import answers, free_port
from oncecast import blocking
from oncecast.errors import OncecastError

PROCESSES = 3
SETTLED = 1.0  # seconds in which the trees form


class Ring(Oncecast):
    setup = (
        f"{PROCESSES} processes, `oncecast serve --own-group --join`; a topic has three replicas; "
        f"subscribers connect to the processes in turn, with push. {Oncecast.setup}"
    )
    push = True

    def start(self, directory: Path) -> None:
        self.addresses: list[str] = []
        for number in range(PROCESSES):
            port = free_port()
            node = f"127.0.0.1:{port}"
            join = ["--join", self.addresses[0]] if self.addresses else []
            command = self.command(node, directory / f"data{number}")
            server = self.run([*command, "--own-group", *join], directory / f"log{number}")
            server.wait_until(lambda port=port: answers(port))  # type: ignore[misc]
            self.addresses.append(node)
        self.address = ",".join(self.addresses)
        for server in self.servers:
            server.wait_until(self.is_complete)

    def is_complete(self) -> bool:
        try:
            with blocking.connect(self.address, connect_timeout=1, timeout=5) as client:
                groups = client.ring().groups
        except OncecastError:
            return False
        whole = [each for each in groups if each.low and len(each.nodes) == PROCESSES]
        return len(whole) == PROCESSES

    async def fan_out(self, values: list[bytes], subscribers: int) -> float:
        topic = self.new_name()
        async with AsyncExitStack() as clients:
            readings = []
            for number in range(subscribers):
                server = self.addresses[number % PROCESSES]
                client = await clients.enter_async_context(oncecast.connect(server))
                name = f"reader{number}"
                readings.append(await client.subscribe(topic, name, push=self.push))
            client = await clients.enter_async_context(oncecast.connect(self.address))
            await asyncio.sleep(SETTLED)
            began = perf_counter()
            await asyncio.gather(
                put_all(client, topic, values),
                *(get_all(reading, len(values)) for reading in readings),
            )
            took = perf_counter() - began
            await client.delete_topic(topic)
        return took


class Pulled(Ring):
    """The same ring, with subscribers that read from the owner."""

    name = "ring, pulled"
    setup = "the same, but subscribers read from the owner"
    push = False
