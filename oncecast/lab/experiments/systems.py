"""Systems that deliver messages to subscribers, behind one interface for experiments.

    scribe     structured: a multicast tree for each topic, over a Chord ring
    plumtree   unstructured: every message to every node over a repaired tree, over HyParView
    flood      unstructured: every message to every node over every link, over HyParView

In unstructured systems, each node drops messages on topics that it has not subscribed to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from oncecast.dht.chord import Chord
from oncecast.dht.events import Routed
from oncecast.dht.scribe import Scribe
from oncecast.dht.tree_messages import JoinTree, Multicast, Multicasted
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.lab.experiments.runs import Note, Run
from oncecast.lab.papers.hyparview_overlay import Overlay
from oncecast.lab.scenarios.chord_steady import Steady
from oncecast.overlay.events import Broadcast, MessageId, NeighborDown, NeighborUp, Received
from oncecast.overlay.hyparview import HyParView
from oncecast.overlay.plumtree import Plumtree
from oncecast.simulator.simulated import Simulation

TOPICS = 30  # number of topics, as in the original study
SUBSCRIBED = 10  # number of topics to which each node subscribes
SETTLE_SECONDS = 10.0
SHUFFLE_EVERY = 10.0

Deliver = Callable[[NodeId, bytes], None]
P = TypeVar("P", bound=Protocol)


class Tally:
    """Counts messages on arrival, by node, layer and type. Crashed nodes do not count."""

    def __init__(self) -> None:
        self.counting = False
        self.received: dict[tuple[NodeId, str, str], int] = {}
        self.sent: dict[tuple[NodeId, str], int] = {}

    def counts(self, sender: NodeId, receiver: Protocol, message: Value) -> bool:
        """Count a message that has arrived. Return False if it is ignored."""
        if not self.counting or sender == receiver.me:
            return False
        key = receiver.me, receiver.name, type(message).__name__
        self.received[key] = self.received.get(key, 0) + 1
        return True

    def counted(self, kind: type[P]) -> type[P]:
        """Return a subclass of a protocol that counts its messages."""

        def receive(protocol: Any, sender: NodeId, message: Value) -> None:
            if self.counts(sender, protocol, message):
                self.sent[sender, kind.name] = self.sent.get((sender, kind.name), 0) + 1
            kind.receive(protocol, sender, message)

        def observe(protocol: Any, event: Value) -> None:
            """Count messages that Chord routes to a root, in the layer above as well."""
            if isinstance(event, Routed):
                self.counts(event.sender, protocol, event)
            kind.observe(protocol, event)

        methods = {"receive": receive} | ({"observe": observe} if issubclass(kind, Scribe) else {})
        return type(kind.__name__, (kind,), methods)

    def tell(self, time: float, note: Note) -> None:
        """Write rows `received` (by layer and type) and `sent` (by layer) with the counts."""
        for (node, layer, kind), count in self.received.items():
            note(time, "received", node, f"{layer}.{kind}", count)
        for (node, layer), count in self.sent.items():
            note(time, "sent", node, layer, count)


class System(ABC):
    """Nodes that subscribe and publish. Each delivery to a subscriber calls `deliver`."""

    sim: Simulation
    names: list[NodeId]

    def __init__(self, deliver: Deliver) -> None:
        self.deliver, self.tally = deliver, Tally()
        self.subscribers: dict[str, dict[NodeId, None]] = {}
        self.topics: dict[bytes, str] = {}  # payload -> topic

    def subscribe_all(self) -> None:
        """Subscribe each node to some topics at random times, and wait until the system settles."""
        names = [f"topic {number}" for number in range(TOPICS)]
        self.subscribers = {topic: {} for topic in names}
        for node in self.names:
            for topic in self.sim.rng.sample(names, SUBSCRIBED):
                self.subscribers[topic][node] = None
                self.subscribe(node, topic)
        self.sim.run(until=self.sim.now + SETTLE_SECONDS)

    def publish_any(self, node: NodeId) -> tuple[bytes, str]:
        """Publish a message on a random topic. Return its payload and the topic."""
        payload, topic = b"%d" % len(self.topics), self.sim.rng.choice(list(self.subscribers))
        self.topics[payload] = topic
        self.publish(node, topic, payload)
        return payload, topic

    @abstractmethod
    def subscribe(self, node: NodeId, topic: str) -> None:
        """Subscribe a node to the topic."""

    @abstractmethod
    def publish(self, node: NodeId, topic: str, payload: bytes) -> None:
        """Publish a message from a node."""

    def crash(self, victims: list[NodeId]) -> None:
        for node in victims:
            self.sim.crash(node)


class Structured(System):
    def __init__(self, run: Run, deliver: Deliver) -> None:
        super().__init__(deliver)
        self.names = [NodeId(f"n{run.seed}-{index}") for index in range(run.nodes)]
        self.sim = Simulation(run.seed, listener=self._heard)
        steady = Steady.of(self.names)
        chord, scribe = self.tally.counted(Chord), self.tally.counted(Scribe)

        def build(me: NodeId, rng: Random) -> Stack:
            return Stack([chord(me, rng, members=steady.members(me)), scribe(me, rng)])

        for name in self.names:
            self.sim.add(name, build)

    def _heard(self, node: NodeId, event: Value) -> None:
        if isinstance(event, Multicasted):
            self.deliver(node, event.payload)

    def subscribe(self, node: NodeId, topic: str) -> None:
        self.sim.call(self.sim.rng.uniform(0.0, 3.0), lambda: self.sim.ask(node, JoinTree(topic)))

    def publish(self, node: NodeId, topic: str, payload: bytes) -> None:
        self.sim.ask(node, Multicast(topic, payload))


class Flooded(Value, tag="Flooded"):
    id: MessageId
    payload: bytes


class Flood(Protocol):
    """Forwards new messages over every link: the baseline for the trees."""

    name = "flood"
    Request = Broadcast
    Message = Flooded
    Observed = NeighborUp | NeighborDown

    def __init__(self, me: NodeId, rng: Random) -> None:
        super().__init__(me, rng)
        self.neighbors: dict[NodeId, None] = {}
        self.seen: dict[MessageId, None] = {}

    def request(self, request: Broadcast) -> None:
        self._spread(Flooded(request.id, request.payload), self.me)

    def observe(self, event: NeighborUp | NeighborDown) -> None:
        if isinstance(event, NeighborUp):
            self.neighbors[event.peer] = None
        else:
            self.neighbors.pop(event.peer, None)

    def receive(self, sender: NodeId, message: Flooded) -> None:
        if message.id not in self.seen:
            self.emit(Received(message.id, message.payload))
            self._spread(message, sender)

    def _spread(self, message: Flooded, sender: NodeId) -> None:
        self.seen[message.id] = None
        for peer in self.neighbors:
            if peer != sender:
                self.send(peer, message)


class Unstructured(System):
    layer: type[Plumtree | Flood] = Plumtree

    def __init__(self, run: Run, deliver: Deliver) -> None:
        super().__init__(deliver)
        layer: type[Plumtree | Flood] = self.tally.counted(self.layer)
        self.overlay = Overlay(
            run.seed,
            run.nodes,
            lambda text: None,
            lambda me, rng: [layer(me, rng)],
            hyparview=self.tally.counted(HyParView),
            shuffle_every=SHUFFLE_EVERY,
        )
        self.overlay.events = self._heard
        self.sim, self.names = self.overlay.sim, self.overlay.names
        self.sim.run(until=self.sim.now + 3 * SHUFFLE_EVERY)
        self.numbers = dict.fromkeys(self.names, 0)

    def subscribe_all(self) -> None:
        super().subscribe_all()
        # The first broadcasts use all links, until Plumtree has pruned the redundant links.
        for node in self.sim.rng.sample(self.names, min(10, len(self.names))):
            self.publish(node, "", b"")
            self.sim.run(until=self.sim.now + 2.0)

    def _heard(self, node: NodeId, event: Value) -> None:
        if isinstance(event, Received):
            self._hear(node, event.payload)

    def _hear(self, node: NodeId, payload: bytes) -> None:
        topic = self.topics.get(payload)
        if topic is not None and node in self.subscribers[topic]:
            self.deliver(node, payload)

    def subscribe(self, node: NodeId, topic: str) -> None:
        pass  # broadcasts need no subscription

    def publish(self, node: NodeId, topic: str, payload: bytes) -> None:
        self.numbers[node] += 1
        self.sim.ask(node, Broadcast(MessageId(node, self.numbers[node]), payload))
        self._hear(node, payload)

    def crash(self, victims: list[NodeId]) -> None:
        self.overlay.crash(victims)


class Flooding(Unstructured):
    layer = Flood


SYSTEMS: dict[str, type[Structured] | type[Unstructured]] = {
    "scribe": Structured,
    "plumtree": Unstructured,
    "flood": Flooding,
}
