"""A ring with the multicast trees of the Scribe paper.

The topic of rank g has N * g^-1.25 members, as in the paper. No node delivers a message on a topic
that it has not joined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from oncecast.dht.chord import Chord
from oncecast.dht.scribe import Scribe
from oncecast.dht.status import TreeStatus
from oncecast.dht.tree import Tree
from oncecast.dht.tree_messages import JoinTree, LeaveTree, Multicast, Multicasted
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.chord import status_of
from oncecast.lab.scenarios.chord_invariant import View, out_of_shape
from oncecast.lab.scenarios.chord_steady import Steady
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.step import Step

HEARTBEAT = 5.0
STABILIZE = 5.0
JOIN_SECONDS = 10.0
SETTLE_SECONDS = 5.0
SPREAD_SECONDS = 3.0
TOPICS_MAX = 100
DEAD = 0.2
LEAVERS = 0.1
SUCCESSORS = 8  # length of a successor list


def scribe_of(sim: Simulation, node: NodeId) -> Scribe:
    return sim.protocol(node, Scribe)


class Audience(Checker):
    """Members and deliveries. Checks that no node delivers a message twice between restarts."""

    def __init__(self) -> None:
        self.joined: dict[str, dict[NodeId, None]] = {}
        # Payload -> nodes that have received it since their last restart.
        self.got: dict[bytes, dict[NodeId, None]] = {}
        self.messages: dict[bytes, str] = {}  # payload -> topic

    def after(self, sim: Simulation, step: Step) -> None:
        if step.kind == "start" and sim.nodes[step.node].starts > 1:
            for got in self.got.values():
                got.pop(step.node, None)

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        if isinstance(event, Multicasted):
            if node not in self.joined[event.topic]:
                raise Violation(
                    f"{node} delivered a message on {event.topic}, but has not joined this topic"
                )
            if self.messages.get(event.payload) != event.topic:
                raise Violation(
                    f"{node} delivered a payload on {event.topic} that no node sent on this topic"
                )
            got = self.got.setdefault(event.payload, {})
            if node in got:
                raise Violation(f"{node} delivered {event.payload!r} twice")
            got[node] = None

    def missing(self, sim: Simulation, payload: bytes) -> list[NodeId]:
        """Return the live members that have not received `payload`."""
        got = self.got.get(payload, {})
        return [
            node
            for node in self.joined[self.messages[payload]]
            if node not in got and sim.nodes[node].stack is not None
        ]


class Forest:
    """A ring with the paper's topics, and the actions that a scenario performs on it."""

    def __init__(self, sim: Simulation, nodes: int, topics: int) -> None:
        self.sim, self.audience = sim, Audience()
        self.names = [NodeId(f"n{index}") for index in range(nodes)]
        self.topics = [f"topic {rank}" for rank in range(1, topics + 1)]
        self.heartbeats: dict[NodeId, float] = {}  # intervals that differ from HEARTBEAT
        self._alive, self._owners = self.names, Steady.of(self.names)
        self._steady = self._owners
        for name in self.names:
            sim.add(name, self._build)

    def _build(self, me: NodeId, rng: Random) -> Stack:
        """Build a node. The first nodes form a ring; later nodes join through live nodes."""
        first = me in self.names and self.sim.nodes[me].starts == 1
        others = [] if first else [node for node in self.sim.alive() if node != me]
        contacts = self.sim.rng.sample(others, min(3, len(others)))
        members = self._steady.members(me, SUCCESSORS) if first else ()
        chord = Chord(
            me,
            rng,
            contacts=contacts,
            members=members,
            stabilize_every=STABILIZE,
            successors_max=SUCCESSORS,
        )
        heartbeat = self.heartbeats.get(me, HEARTBEAT)
        return Stack([chord, Scribe(me, rng, heartbeat_every=heartbeat)])

    def grow(self, nodes: int) -> None:
        """Add nodes to the ring. The new nodes take over some keys, and so become roots."""
        for index in range(nodes):
            self.sim.add(NodeId(f"late {index}"), self._build)
        self.sim.run(until=self.sim.now + SETTLE_SECONDS)

    def join(self) -> None:
        for rank, topic in enumerate(self.topics, 1):
            size = max(1, int(len(self.names) * rank**-1.25 + 0.5))
            members = self.sim.rng.sample(self.names, size)
            self.audience.joined[topic] = dict.fromkeys(members)
            for node in members:
                self._soon(partial(self.sim.ask, node, JoinTree(topic)))
        self.sim.run(until=self.sim.now + JOIN_SECONDS + SETTLE_SECONDS)

    def leave(self) -> None:
        """Let a fraction of each topic's members leave."""
        for topic, members in self.audience.joined.items():
            for node in self.sim.rng.sample(list(members), int(len(members) * LEAVERS)):
                self.sim.ask(node, LeaveTree(topic))
                del members[node]
        self.sim.run(until=self.sim.now + SETTLE_SECONDS)

    def _soon(self, action: Callable[[], None]) -> None:
        self.sim.call(self.sim.rng.uniform(0.0, JOIN_SECONDS), action)

    def say(self, topic: str) -> bytes:
        """Multicast a new message from the root or a random node, and return its payload."""
        payload = b"%d on %s" % (len(self.audience.messages), topic.encode())
        self.audience.messages[payload] = topic
        alive = self.sim.alive()
        speaker = self.sim.rng.choice((self.root(topic), self.sim.rng.choice(alive)))
        self.sim.ask(speaker, Multicast(topic, payload))
        return payload

    def owners(self) -> Steady:
        """Return the ring of live nodes, which determines the owner of each key."""
        alive = self.sim.alive()
        if alive != self._alive:
            self._alive, self._owners = alive, Steady.of(alive)
        return self._owners

    def root(self, topic: str) -> NodeId:
        return self.owners().owner(Tree(topic).key).node

    def multicast(self) -> None:
        """Multicast a message on each topic, and check that all live members get it."""
        messages = [self.say(topic) for topic in self.topics]
        self.sim.run(until=self.sim.now + SPREAD_SECONDS)
        for payload in messages:
            if missing := self.audience.missing(self.sim, payload):
                raise Violation(
                    f"{len(missing)} members did not get {payload!r}, including {missing[:3]}"
                )

    def kill(self, share: float) -> None:
        for node in self.sim.rng.sample(self.names, int(len(self.names) * share)):
            self.sim.crash(node)

    def trees(self, node: NodeId) -> Mapping[str, TreeStatus]:
        return scribe_of(self.sim, node).trees

    def torn(self) -> str:
        """Describe a fault in a tree. Return "" if each live member is connected to the root."""
        alive = {node: self.trees(node) for node in self.sim.alive()}
        for topic, members in self.audience.joined.items():
            hanging = {self.root(topic): None}
            for node in members:
                if node in alive and (wrong := self._climb(alive, hanging, topic, node)):
                    return f"{topic}: {wrong}"
        return ""

    def _climb(
        self,
        alive: dict[NodeId, Mapping[str, TreeStatus]],
        hanging: dict[NodeId, None],
        topic: str,
        node: NodeId,
    ) -> str:
        way: list[NodeId] = []
        while node not in hanging:
            tree = alive[node].get(topic)
            parent = None if tree is None else tree.parent
            if parent not in alive or node in way:
                return f"{node} has no path to the root"
            above = alive[parent].get(topic)
            if above is None or node not in above.children:
                return f"{parent} does not forward payloads to {node}"
            way.append(node)
            node = parent
        hanging |= dict.fromkeys(way)
        return ""

    def unsettled(self) -> str:
        """Describe a fault in the ring, the roots or the trees, or return an empty string."""
        members = [
            member for node in self.sim.alive() for member in status_of(self.sim, node).members
        ]
        views = [View(member.position, member.successors) for member in members]
        if wrong := out_of_shape(views, SUCCESSORS):
            return wrong
        roots = {topic: self.root(topic) for topic in self.topics}
        for node in self.sim.alive():
            for topic, tree in self.trees(node).items():
                if tree.root != (node == roots[topic]):
                    return f"{topic}: {node} is {'' if tree.root else 'not '}the root"
        return self.torn()

    def repaired(self, heartbeats: float) -> float:
        """Return how many heartbeats the repair of the trees took, or raise Violation."""
        return self._until(self.torn, heartbeats)

    def settled(self, heartbeats: float) -> float:
        """Return how many heartbeats the repair of ring and trees took, or raise Violation."""
        return self._until(self.unsettled, heartbeats)

    def _until(self, wrong: Callable[[], str], heartbeats: float) -> float:
        began = self.sim.now
        while wrong():
            if self.sim.now - began >= heartbeats * HEARTBEAT:
                raise Violation(f"after {heartbeats:g} heartbeats, {wrong()}")
            self.sim.run(until=self.sim.now + HEARTBEAT / 10)
        return (self.sim.now - began) / HEARTBEAT
