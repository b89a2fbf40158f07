"""Run a broadcast node as a process: commands on stdin, events on stdout, log on stderr.

    commands publish COUNT BYTES     broadcast COUNT messages of this size
             expect COUNT            print `reached COUNT` once COUNT are delivered or lost
             status                  print `status {...}`
    events   ready COUNT             the node listens and had COUNT messages on its disk
             neighbors COUNT         whenever the number of neighbors changes

The process ends with stdin, or by SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from random import Random

from msgspec.structs import asdict

from oncecast.errors import SyncFailed
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.network.network import Runtime, run
from oncecast.network.options import Options
from oncecast.overlay import Delivered, Lost, Mesh, MessageId, Plumtree, Publish, Recovery
from oncecast.storage.disk import OsDisk
from oncecast.storage.journal import Journal

KEPT_BYTES = 4 * 1024 * 1024


class Broadcaster:
    def __init__(self, me: NodeId, peers: list[NodeId]) -> None:
        rng = Random()
        self.mesh = Mesh(me, rng, peers=peers, retry_every=0.5)
        self.recovery = Recovery(
            me, rng, compare_every=0.3, lost_after=1.0, kept_bytes_max=KEPT_BYTES
        )
        plumtree = Plumtree(me, rng, cache_bytes_max=KEPT_BYTES)
        self.stack = Stack([self.mesh, plumtree, self.recovery])
        self.delivered: dict[MessageId, int] = {}  # message -> bytes
        self.lost = self.neighbors = 0
        self.expected: list[int] = []

    def on_event(self, event: Value) -> None:
        match event:
            case Delivered(key, payload):
                assert key not in self.delivered, f"{key} was delivered twice"
                self.delivered[key] = len(payload)
            case Lost(_, first, last):
                self.lost += last - first + 1
            case _:
                pass

    def after_step(self, *step: object) -> None:
        if (neighbors := sum(self.mesh.peers.values())) != self.neighbors:
            self.neighbors = neighbors
            say("neighbors", neighbors)
        while self.expected and self.expected[0] <= len(self.delivered) + self.lost:
            say("reached", self.expected.pop(0))


def say(*words: object) -> None:
    print(*words, flush=True)


class Orders:
    """Reads commands from stdin and runs them."""

    def __init__(self, node: Broadcaster, runtime: Runtime) -> None:
        self.node, self.runtime, self._unread = node, runtime, b""

    def read(self) -> None:
        chunk = os.read(sys.stdin.fileno(), 4096)
        if not chunk:
            self.runtime.stop()
            return
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        for line in lines:
            self._run(line.decode().split())

    def _run(self, words: list[str]) -> None:
        match words:
            case ["publish", count, size]:
                for _ in range(int(count)):
                    self.runtime.request(Publish(bytes(int(size))))
            case ["expect", count]:
                self.node.expected.append(int(count))
                self.node.after_step()
            case ["status"]:
                status = {
                    "delivered": len(self.node.delivered),
                    "lost": self.node.lost,
                    "small": sum(size < 1000 for size in self.node.delivered.values()),
                    "stats": asdict(self.runtime.stats),
                }
                say("status", json.dumps(status))
            case _:
                raise ValueError(f"unknown command: {words}")


async def main(arguments: argparse.Namespace) -> None:
    node = Broadcaster(arguments.me, arguments.peers)
    disk = OsDisk(arguments.directory)
    journal = Journal.open(disk, node.stack)
    node.delivered = {key: len(payload) for key, payload in node.recovery.held.items()}
    if arguments.broken_disk:
        journal.sync = broken_sync  # type: ignore[method-assign]
    runtime = Runtime(
        node.stack,
        me=arguments.me,
        journal=journal,
        on_event=node.on_event,
        trace=node.after_step,
        options=Options(
            queue_bytes_max=2 * 1024 * 1024,
            keepalive=arguments.keepalive,
            handshake_timeout=1.0,
            backoff_max=0.5,
        ),
    )
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), Orders(node, runtime).read)
    asyncio.get_running_loop().call_soon(say, "ready", len(node.delivered))
    await runtime.run()
    disk.close()


def broken_sync() -> None:
    raise SyncFailed("the disk is broken")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("me", type=NodeId)
    parser.add_argument("directory", type=Path)
    parser.add_argument("peers", type=NodeId, nargs="*")
    parser.add_argument("--keepalive", type=float, default=0.5)
    parser.add_argument("--broken-disk", action="store_true")
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    run(main(parser.parse_args()))
