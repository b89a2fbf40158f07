"""Multicast trees over a ring: all members get each message, even after a fifth of the nodes die.

Three heartbeats after the deaths, each tree is whole again. Then the seed draws faults: nodes
restart, roots more often than other nodes. Nodes are isolated or slow. Members join and leave, and
messages are late, lost and repeated. No node may deliver a message twice between restarts.
Afterwards each tree is whole again, and each member gets each new message.
"""

from __future__ import annotations

from collections.abc import Callable

from oncecast.dht.tree_messages import JoinTree, LeaveTree
from oncecast.kernel.protocol import NodeId
from oncecast.lab.scenarios.conditions import Conditions
from oncecast.lab.scenarios.scenario import Figures, Scenario
from oncecast.lab.scenarios.scribe_forest import DEAD, HEARTBEAT, TOPICS_MAX, Forest
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.weather import LAN

TROUBLE_SECONDS = 10.0  # mean duration of the faults
TROUBLES = 12  # mean number of faults
# Number of heartbeats after the faults; long, because separate rings meet by chance.
SETTLED_WITHIN = 150.0


class Trouble:
    """Random faults and requests, at random times."""

    def __init__(self, forest: Forest, conditions: Conditions) -> None:
        self.forest, self.sim, self.conditions = forest, forest.sim, conditions
        self.rng = conditions.rng
        self.happened: dict[str, int] = {}
        self._over_at = 0.0
        self._kinds: tuple[Callable[[str, NodeId], None], ...] = (
            self._bounce,
            self._bounce,
            self._crash,
            self._cut_off,
            self._slow,
            self._join,
            self._leave,
            self._speak,
            self._speak,
        )

    def go_through(self) -> None:
        conditions, weather, alive = self.conditions, self.sim.weather, self.sim.alive()
        for node in alive:
            self.sim.skew(node, rate=self.rng.uniform(0.8, 1.25))
            # This heartbeat applies after the next restart.
            self.forest.heartbeats[node] = HEARTBEAT * self.rng.uniform(0.8, 1.25)
        latency = conditions.latency
        weather.set(latency=latency, loss=conditions.loss, duplication=conditions.duplication)
        for _ in range(conditions.count(TROUBLES)):
            self.sim.call(self.rng.uniform(0.0, conditions.storm_seconds), self._happen)
        self._over_at = self.sim.now + conditions.storm_seconds
        self.sim.run(until=self._over_at)
        self.sim.run(until=self._over_at)  # run again, because a node may come back later
        self.sim.repair()
        weather.set(latency=LAN, loss=0.0, duplication=0.0)

    def _happen(self) -> None:
        topic = self.rng.choice(self.forest.topics)
        victim = self.rng.choice((self.forest.root(topic), self.rng.choice(self.sim.alive())))
        kind = self.rng.choice(self._kinds)
        name = kind.__name__.strip("_")
        self.happened[name] = self.happened.get(name, 0) + 1
        kind(topic, victim)

    def _bounce(self, topic: str, victim: NodeId) -> None:
        self._restart(victim, 0.0)

    def _crash(self, topic: str, victim: NodeId) -> None:
        self._restart(victim, self.conditions.time(0.001, self.conditions.storm_seconds))

    def _restart(self, victim: NodeId, away: float) -> None:
        """Restart a node after `away` seconds. Its application joins the same topics again."""
        joined = [topic for topic, nodes in self.forest.audience.joined.items() if victim in nodes]
        for topic in joined:
            del self.forest.audience.joined[topic][victim]

        def join_again() -> None:
            for topic in joined:
                self._join(topic, victim)

        self._over_at = max(self._over_at, self.sim.now + away)
        self.sim.bounce(victim, away)
        self.sim.call(away, join_again)

    def _cut_off(self, topic: str, victim: NodeId) -> None:
        fronts = self.sim.isolate(victim)
        lasting = self.conditions.time(0.1, self.conditions.storm_seconds)
        self.sim.call(lasting, lambda: self.sim.repair(fronts))

    def _slow(self, topic: str, victim: NodeId) -> None:
        fronts = self.sim.slow([victim], extra=self.rng.uniform(0.0, 1.0))
        self.sim.call(self.conditions.time(0.1, 5.0), lambda: self.sim.repair(fronts))

    def _join(self, topic: str, victim: NodeId) -> None:
        if self.sim.nodes[victim].stack is not None:
            self.forest.audience.joined[topic][victim] = None
            self.sim.ask(victim, JoinTree(topic))

    def _leave(self, topic: str, victim: NodeId) -> None:
        if victim in self.forest.audience.joined[topic]:
            del self.forest.audience.joined[topic][victim]
            self.sim.ask(victim, LeaveTree(topic))

    def _speak(self, topic: str, victim: NodeId) -> None:
        self.forest.say(topic)


def play(sim: Simulation, nodes: int) -> Figures:
    conditions = Conditions(sim, SCRIBE.nodes_min, nodes, TROUBLE_SECONDS)
    count = len(conditions.names)
    forest = Forest(sim, count, min(TOPICS_MAX, max(1, count // 4)))
    sim.check(forest.audience)
    forest.join()
    forest.multicast()
    forest.leave()
    forest.multicast()
    forest.kill(DEAD)
    heartbeats = forest.repaired(3)
    forest.multicast()
    forest.grow(max(2, count // 4))
    forest.repaired(3)
    forest.multicast()
    trouble = Trouble(forest, conditions)
    trouble.go_through()
    settled = forest.settled(SETTLED_WITHIN)
    forest.multicast()
    return {
        "messages": len(forest.audience.messages),
        "heartbeats": round(heartbeats, 3),
        "heartbeats_after_trouble": round(settled, 3),
        "trouble": trouble.happened,
    }


SCRIBE = Scenario(
    "scribe", "multicast trees over a ring while a fifth of its nodes die", 28, play, 4
)
