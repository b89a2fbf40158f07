"""Run NATS JetStream as a cluster of three; streams are replicated and synced before every ack."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.peers.nats_jetstream import Nats
from bench.peers.peer import answers, free_port, program
from oncecast.network.network import run

NODES = 3


class NatsGroup(Nats):
    name = "NATS R3"
    setup = f"{NODES} nats-server in a cluster, streams with {NODES} replicas. {Nats.setup}"
    replicas = NODES

    def start(self, directory: Path) -> None:
        ports = [(free_port(), free_port()) for _ in range(NODES)]
        self.address = f"127.0.0.1:{ports[0][0]}"
        routes = ", ".join(f"nats://127.0.0.1:{route}" for _, route in ports)
        for number, (port, route) in enumerate(ports):
            settings = directory / f"nats{number}.conf"
            settings.write_text(
                f'server_name: "node{number}"\nlisten: "127.0.0.1:{port}"\n'
                f'cluster {{ name: bench, listen: "127.0.0.1:{route}", routes: [{routes}] }}\n'
                f'jetstream {{ store_dir: "{directory / str(number)}", sync_interval: always }}\n'
            )
            log = directory / f"log{number}"
            self.run([program("nats-server") or "", "-c", settings], log)
        for server, (port, _) in zip(self.servers, ports, strict=True):
            server.wait_until(lambda port=port: answers(port))  # type: ignore[misc]
        self.servers[0].wait_until(lambda: run(self.is_complete()))

    async def is_complete(self) -> bool:
        """Return whether a stream with all replicas can be created."""
        from nats.errors import Error

        try:
            async with asyncio.timeout(5), self.connect() as stream, self.stream(stream):
                return True
        except (Error, OSError):
            return False
