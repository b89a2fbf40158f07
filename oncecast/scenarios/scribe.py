"""Multicast trees over a ring: all members get every message, also after a fifth of the nodes died.

Groups are as large as in the Scribe paper: of rank g, N times g to the power of -1.25. Nobody
delivers what it has not joined for; three heartbeats after the deaths every tree is whole again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from oncecast.dht.chord import Chord
from oncecast.dht.scribe import Scribe
from oncecast.dht.steady import Steady
from oncecast.dht.tree import JoinTree, LeaveTree, Multicast, Multicasted, Tree
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.runtime.checkers import Checker, Violation
from oncecast.runtime.simulated import Simulation
from oncecast.scenarios.scenario import Figures, Scenario

HEARTBEAT = 5.0
STABILIZE = 5.0
JOIN_SECONDS = 10.0
SETTLE_SECONDS = 5.0
SPREAD_SECONDS = 3.0
GROUPS_MAX = 100
DEAD = 0.2
LEAVERS = 0.1


def scribe_of(sim: Simulation, node: NodeId) -> Scribe:
    stack = sim.nodes[node].stack
    assert stack is not None, f"{node} is down"
    scribe = stack.protocols[1]
    assert isinstance(scribe, Scribe)
    return scribe


class Audience(Checker):
    """Who has joined what, and who has got what: no more than it joined for, and once."""

    def __init__(self) -> None:
        self.joined: dict[str, dict[NodeId, None]] = {}
        self.got: dict[bytes, dict[NodeId, None]] = {}
        self.messages: dict[bytes, str] = {}  # and on which topic

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        if isinstance(event, Multicasted):
            if node not in self.joined[event.topic]:
                raise Violation(f"{node} delivers on {event.topic}, which it has not joined")
            if self.messages.get(event.payload) != event.topic:
                raise Violation(f"{node} delivers on {event.topic} what nobody said there")
            got = self.got.setdefault(event.payload, {})
            if node in got:
                raise Violation(f"{node} delivers {event.payload!r} twice")
            got[node] = None

    def missing(self, sim: Simulation, payload: bytes) -> list[NodeId]:
        """The live members that have not got it."""
        got = self.got.get(payload, {})
        return [
            node
            for node in self.joined[self.messages[payload]]
            if node not in got and sim.nodes[node].stack is not None
        ]


class Forest:
    """A ring, and on it the groups of the paper."""

    def __init__(self, sim: Simulation, nodes: int, groups: int) -> None:
        self.sim, self.audience = sim, Audience()
        self.names = [NodeId(f"n{index}") for index in range(nodes)]
        self.groups = [f"topic {rank}" for rank in range(1, groups + 1)]
        steady = Steady(self.names)

        def build(me: NodeId, rng: Random) -> Stack:
            chord = Chord(me, rng, stabilize_every=STABILIZE)
            return Stack([steady.fill(chord), Scribe(me, rng, heartbeat_every=HEARTBEAT)])

        for name in self.names:
            sim.add(name, build)

    def grow(self, nodes: int) -> None:
        """More nodes join the ring; some keys, and with them some roots, move to them."""
        contacts = self.sim.rng.sample(self.sim.alive(), 3)

        def build(me: NodeId, rng: Random) -> Stack:
            chord = Chord(me, rng, contacts=contacts, stabilize_every=STABILIZE)
            return Stack([chord, Scribe(me, rng, heartbeat_every=HEARTBEAT)])

        for index in range(nodes):
            self.sim.add(NodeId(f"late {index}"), build)
        self.sim.run(until=self.sim.now + SETTLE_SECONDS)

    def join(self) -> None:
        for rank, topic in enumerate(self.groups, 1):
            size = max(1, int(len(self.names) * rank**-1.25 + 0.5))
            members = self.sim.rng.sample(self.names, size)
            self.audience.joined[topic] = dict.fromkeys(members)
            for node in members:
                self._soon(partial(self.sim.ask, node, JoinTree(topic)))
        self.sim.run(until=self.sim.now + JOIN_SECONDS + SETTLE_SECONDS)

    def leave(self) -> None:
        """Some of each group; they become forwarders, or nothing."""
        for topic, members in self.audience.joined.items():
            for node in self.sim.rng.sample(list(members), int(len(members) * LEAVERS)):
                self.sim.ask(node, LeaveTree(topic))
                del members[node]
        self.sim.run(until=self.sim.now + SETTLE_SECONDS)

    def _soon(self, action: Callable[[], None]) -> None:
        self.sim.call(self.sim.rng.uniform(0.0, JOIN_SECONDS), action)

    def multicast(self) -> None:
        """One message on each topic, from anywhere; all live members must get it."""
        messages = []
        alive = self.sim.alive()
        for topic in self.groups:
            payload = b"%d on %s" % (len(self.audience.messages), topic.encode())
            self.audience.messages[payload] = topic
            messages.append(payload)
            self.sim.ask(self.sim.rng.choice(alive), Multicast(topic, payload))
        self.sim.run(until=self.sim.now + SPREAD_SECONDS)
        for payload in messages:
            if missing := self.audience.missing(self.sim, payload):
                raise Violation(f"{len(missing)} members have not got {payload!r}: {missing[:3]}")

    def kill(self, share: float) -> None:
        for node in self.sim.rng.sample(self.names, int(len(self.names) * share)):
            self.sim.crash(node)

    def trees(self, node: NodeId) -> dict[str, Tree]:
        return scribe_of(self.sim, node).trees

    def torn(self) -> str:
        """What is wrong with the trees: each live member must hang from the owner of the key."""
        alive = {node: self.trees(node) for node in self.sim.alive()}
        owners = Steady(alive)
        for topic, members in self.audience.joined.items():
            hanging = {owners.owner(Tree(topic).key).node: None}
            for node in members:
                if node in alive and (wrong := self._climb(alive, hanging, topic, node)):
                    return f"{topic}: {wrong}"
        return ""

    def _climb(
        self,
        alive: dict[NodeId, dict[str, Tree]],
        hanging: dict[NodeId, None],
        topic: str,
        node: NodeId,
    ) -> str:
        way: list[NodeId] = []
        while node not in hanging:
            tree = alive[node].get(topic)
            parent = None if tree is None else tree.parent
            if parent not in alive or node in way:
                return f"{node} has no way up"
            above = alive[parent].get(topic)
            if above is None or node not in above.children:
                return f"{parent} does not feed {node}"
            way.append(node)
            node = parent
        hanging |= dict.fromkeys(way)
        return ""

    def mended(self, heartbeats: float) -> float:
        """How many heartbeats it takes until all trees are whole; at most so many."""
        began = self.sim.now
        while self.torn():
            if self.sim.now - began >= heartbeats * HEARTBEAT:
                raise Violation(f"after {heartbeats:g} heartbeats {self.torn()}")
            self.sim.run(until=self.sim.now + HEARTBEAT / 10)
        return (self.sim.now - began) / HEARTBEAT


def play(sim: Simulation, nodes: int) -> Figures:
    forest = Forest(sim, nodes, min(GROUPS_MAX, max(1, nodes // 4)))
    sim.check(forest.audience)
    forest.join()
    forest.multicast()
    forest.leave()
    forest.multicast()
    forest.kill(DEAD)
    heartbeats = forest.mended(3)
    forest.multicast()
    forest.grow(max(2, nodes // 4))
    forest.mended(3)
    forest.multicast()
    return {"messages": len(forest.audience.messages), "heartbeats": round(heartbeats, 3)}


SCRIBE = Scenario("scribe", "multicast trees over a ring, a fifth of which dies", 40, play, 4)
