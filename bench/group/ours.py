"""Run oncecast as a group of three processes, each with its own directory, and as one node."""

from __future__ import annotations

from pathlib import Path

from bench.peers.ours import Oncecast
from bench.peers.peer import answers, free_port
from oncecast import blocking
from oncecast.errors import OncecastError

NODES = 3


class Alone(Oncecast):
    name = "one node"
    setup = "`oncecast serve` with default settings; the same client"


class Group(Oncecast):
    setup = f"{NODES} nodes, `oncecast serve --join`. {Oncecast.setup}"

    def start(self, directory: Path) -> None:
        addresses: list[str] = []
        for number in range(NODES):
            port = free_port()
            node = f"127.0.0.1:{port}"
            join = ["--join", ",".join(addresses)] if addresses else []
            command = self.command(node, directory / f"data{number}")
            server = self.run([*command, *join], directory / f"log{number}")
            server.wait_until(lambda port=port: answers(port))  # type: ignore[misc]
            addresses.append(node)
        self.address = ",".join(addresses)
        for server in self.servers:
            server.wait_until(self.is_complete)

    def is_complete(self) -> bool:
        try:
            with blocking.connect(self.address, connect_timeout=1, timeout=5) as client:
                view = client.group()
        except OncecastError:
            return False
        return view.quorum and len(view.members) == NODES
