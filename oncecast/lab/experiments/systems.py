"""Systems that carry messages to subscribers, behind one interface for experiments.

    scribe     structured: a multicast tree for each topic, over a Chord ring
    plumtree   unstructured: every message to every node over a repaired tree, over HyParView
    flood      unstructured: every message to every node over every link, over HyParView

In unstructured systems each node drops messages of topics that it has not subscribed to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from types import MethodType

from oncecast.dht.chord import Chord
from oncecast.dht.events import Routed
from oncecast.dht.scribe import Scribe
from oncecast.dht.tree import JoinTree, Multicast, Multicasted
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.lab.experiments.runs import Note, Run
from oncecast.lab.papers.hyparview_overlay import Overlay
from oncecast.lab.scenarios.chord_steady import Steady
from oncecast.overlay.events import Broadcast, MessageId, NeighborDown, NeighborUp, Received
from oncecast.overlay.plumtree import Plumtree
from oncecast.simulator.simulated import Simulation

TOPICS = 30  # as in the source
SUBSCRIBED = 10  # topics of each node
SETTLE_SECONDS = 10.0
SHUFFLE_EVERY = 10.0

Deliver = Callable[[NodeId, bytes], None]


class Tally:
    """Messages counted on arrival, by node, layer and type. Crashed nodes do not count."""

    def __init__(self) -> None:
        self.received: dict[tuple[NodeId, str, str], int] = {}
        self.sent: dict[tuple[NodeId, str], int] = {}

    def watch(self, sim: Simulation) -> None:
        """Start to count."""
        for node in sim.nodes.values():
            if node.stack is not None:
                for protocol in node.stack.protocols:
                    self.attach(protocol)
                if node.fast is not None:
                    sim.add_handlers(node.me, node.stack)  # replace those registered before

    def attach(self, protocol: Protocol) -> None:
        received, sent, layer, receive = self.received, self.sent, protocol.name, protocol.receive

        def counted(self: Protocol, sender: NodeId, message: Value) -> None:
            if sender != self.me:
                key = self.me, layer, type(message).__name__
                received[key] = received.get(key, 0) + 1
                sent[sender, layer] = sent.get((sender, layer), 0) + 1
            receive(sender, message)

        protocol.receive = MethodType(counted, protocol)  # type: ignore[method-assign]
        if isinstance(protocol, Scribe):
            self._attach_routed(protocol)

    def _attach_routed(self, scribe: Scribe) -> None:
        """Count messages that Chord routes to a root in the layer above as well."""
        received, observe = self.received, scribe.observe

        def counted(self: Scribe, event: Value) -> None:
            if isinstance(event, Routed) and event.sender != self.me:
                key = self.me, self.name, "Routed"
                received[key] = received.get(key, 0) + 1
            observe(event)  # type: ignore[arg-type]

        scribe.observe = MethodType(counted, scribe)  # type: ignore[method-assign]

    def tell(self, time: float, note: Note) -> None:
        """Note rows `received` (about layer.type) and `sent` (about a layer), with counts."""
        for (node, layer, kind), count in self.received.items():
            note(time, "received", node, f"{layer}.{kind}", count)
        for (node, layer), count in self.sent.items():
            note(time, "sent", node, layer, count)


class System(ABC):
    """Nodes that subscribe and publish. `deliver` is called for each delivery to a subscriber."""

    sim: Simulation
    names: list[NodeId]

    def __init__(self, deliver: Deliver) -> None:
        self.deliver = deliver
        self.subscribers: dict[str, dict[NodeId, None]] = {}
        self.topics: dict[bytes, str] = {}  # by payload

    def subscribe_all(self) -> None:
        """Subscribe each node to some topics at random times, and wait until it is quiet."""
        names = [f"topic {number}" for number in range(TOPICS)]
        self.subscribers = {topic: {} for topic in names}
        for node in self.names:
            for topic in self.sim.rng.sample(names, SUBSCRIBED):
                self.subscribers[topic][node] = None
                self.subscribe(node, topic)
        self.sim.run(until=self.sim.now + SETTLE_SECONDS)

    def publish_any(self, node: NodeId) -> tuple[bytes, str]:
        """Publish a message on any topic; return its payload and the topic."""
        payload, topic = b"%d" % len(self.topics), self.sim.rng.choice(list(self.subscribers))
        self.topics[payload] = topic
        self.publish(node, topic, payload)
        return payload, topic

    @abstractmethod
    def subscribe(self, node: NodeId, topic: str) -> None:
        """Subscribe this node to the topic."""

    @abstractmethod
    def publish(self, node: NodeId, topic: str, payload: bytes) -> None:
        """Publish a message from this node."""

    def crash(self, victims: list[NodeId]) -> None:
        for node in victims:
            self.sim.crash(node)


class Structured(System):
    def __init__(self, run: Run, deliver: Deliver) -> None:
        super().__init__(deliver)
        self.names = [NodeId(f"n{run.seed}-{index}") for index in range(run.nodes)]
        self.sim = Simulation(run.seed, listener=self._heard)
        steady = Steady.of(self.names)

        def build(me: NodeId, rng: Random) -> Stack:
            chord = Chord(me, rng, members=steady.members(me))
            return Stack([chord, Scribe(me, rng)])

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
    layer: type[Plumtree] | type[Flood] = Plumtree

    def __init__(self, run: Run, deliver: Deliver) -> None:
        super().__init__(deliver)
        self.overlay = Overlay(
            run.seed,
            run.nodes,
            lambda text: None,
            lambda me, rng: [self.layer(me, rng)],
            shuffle_every=SHUFFLE_EVERY,
        )
        self.overlay.events = self._heard
        self.sim, self.names = self.overlay.sim, self.overlay.names
        self.sim.run(until=self.sim.now + 3 * SHUFFLE_EVERY)
        self.numbers = dict.fromkeys(self.names, 0)

    def subscribe_all(self) -> None:
        super().subscribe_all()
        # The first broadcasts use all links, until Plumtree has found those that it does not need.
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
