"""Streams on a few nodes, and a network that the test controls."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from oncecast.kernel.protocol import Emit, NodeId, Send, Value
from oncecast.overlay.events import NeighborDown, NeighborUp
from oncecast.streams.protocols.cache import Sample
from oncecast.streams.protocols.events import OpenReader, OpenWriter, Took, Write
from oncecast.streams.protocols.policies import QoS
from oncecast.streams.protocols.streams import Streams, Tick

STREAM = "s"


class Wires:
    def __init__(self, *names: str, seed: int = 0) -> None:
        self.rng = Random(seed)
        self.now = 0.0
        self.nodes = {NodeId(name): Streams(NodeId(name), Random(name)) for name in names}
        self.in_flight: list[tuple[NodeId, NodeId, Value]] = []
        self.events: dict[NodeId, list[Value]] = {node: [] for node in self.nodes}
        self.sent = 0
        self._tickets = 0
        for node, streams in self.nodes.items():
            for peer in self.nodes:
                if peer != node:
                    streams.observe(NeighborUp(peer))
            self._collect(node)

    def _collect(self, node: NodeId) -> None:
        for effect in self.nodes[node].drain():
            if isinstance(effect, Send):
                self.sent += 1
                self.in_flight.append((node, effect.to, effect.message))
            elif isinstance(effect, Emit):
                self.events[node].append(effect.event)

    def ask(self, node: str, request: Value) -> None:
        streams = self.nodes[NodeId(node)]
        streams.now = self.now
        streams.request(request)  # type: ignore[arg-type]
        self._collect(NodeId(node))

    def writer(self, node: str, qos: QoS) -> None:
        self.ask(node, OpenWriter(STREAM, qos))

    def reader(self, node: str, qos: QoS) -> None:
        self.ask(node, OpenReader(STREAM, qos))

    def write(self, node: str, value: int, key: bytes = b"k") -> None:
        self._tickets += 1
        self.ask(node, Write(STREAM, self._tickets, (key,), (b"%d" % value,)))

    def write_many(self, node: str, values: Sequence[int], *keys: bytes) -> None:
        """Write several values in one call."""
        self._tickets += 1
        written = tuple(b"%d" % value for value in values)
        self.ask(node, Write(STREAM, self._tickets, keys or (b"k",), written))

    def take(self, node: str) -> list[int]:
        taken = values(self.nodes[NodeId(node)].readers[STREAM].cache.take())
        self.ask(node, Took(STREAM))
        return taken

    # -- the network --

    def deliver(self, index: int = 0) -> None:
        sender, to, message = self.in_flight.pop(index)
        if to in self.nodes:
            self.nodes[to].now = self.now
            self.nodes[to].receive(sender, message)  # type: ignore[arg-type]
            self._collect(to)

    def deliver_all(self) -> None:
        while self.in_flight:
            self.deliver()

    def shuffle(self, loss: float = 0.0, duplication: float = 0.0) -> None:
        """Deliver all messages in flight in random order, with losses and duplicates."""
        for _ in range(len(self.in_flight)):
            index = self.rng.randrange(len(self.in_flight))
            if self.rng.random() < loss:
                del self.in_flight[index]
            else:
                if self.rng.random() < duplication:
                    self.in_flight.append(self.in_flight[index])
                self.deliver(index)

    def tick(self, seconds: float = 0.1) -> None:
        self.now += seconds
        for node, streams in self.nodes.items():
            streams.now = self.now
            streams.timeout(Tick())
            self._collect(node)

    def settle(self, turns: int = 40) -> None:
        for _ in range(turns):
            self.deliver_all()
            self.tick()
        self.deliver_all()

    def crash(self, name: str) -> None:
        """Remove a node; its messages stay in flight, and the other nodes suspect it."""
        node = NodeId(name)
        del self.nodes[node]
        for other, streams in self.nodes.items():
            streams.now = self.now
            streams.observe(NeighborDown(node))
            self._collect(other)

    # -- results --

    def cached(self, node: str) -> list[int]:
        return values(self.nodes[NodeId(node)].readers[STREAM].cache.read())

    def of_kind(self, node: str, kind: type[Value]) -> list[Value]:
        return [event for event in self.events[NodeId(node)] if isinstance(event, kind)]


def values(samples: Sequence[Sample]) -> list[int]:
    return [int(sample.value) for sample in samples]
