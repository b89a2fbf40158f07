"""Durable broadcast under faults: each node delivers each message once.

The stack is Mesh, Plumtree and Recovery, with or without a disk. Nodes publish while a storm of
faults crashes, pauses, isolates and skews nodes, and breaks disks and the network. Then the faults
end. A node without a disk is a new node after each restart and gets all messages again.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.conditions import Conditions, DrawnStorm
from oncecast.lab.scenarios.scenario import Figures, Scenario
from oncecast.overlay.events import Delivered, Lost, MessageId, Publish
from oncecast.overlay.mesh import Mesh
from oncecast.overlay.plumtree import Plumtree
from oncecast.overlay.recovery import Recovery
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Build, Simulation
from oncecast.simulator.step import Step

STORM_SECONDS = 10.0  # mean duration of a storm
PATIENCE = 120.0  # seconds after the storm within which each node must get each message
DELAY_MAX = 0.5  # maximum delay of a message after the storm
MESSAGES = 60


class Layers:
    """Plumtree and Recovery with random options. Some nodes have no disk."""

    def __init__(self, conditions: Conditions) -> None:
        rng, names = conditions.rng, conditions.names
        self.durable = names if rng.random() < 0.5 else rng.sample(names, len(names) // 2)
        self._grafts = {name: conditions.time(0.1, 1.0) for name in names}
        self._compares = {name: conditions.time(0.3, 2.0) for name in names}
        self._snapshot_every = rng.choice((3, 40, 1000))
        self._cache_max = rng.choice((1, 1000))
        self._batch_max = rng.choice((8, 64))

    def __call__(self, me: NodeId, rng: Random) -> list[Protocol]:
        return [
            Plumtree(me, rng, graft_after=self._grafts[me], cache_max=self._cache_max),
            Recovery(
                me,
                rng,
                incarnation="" if me in self.durable else f"{rng.getrandbits(64):x}",
                compare_every=self._compares[me],
                snapshot_every=self._snapshot_every,
                batch_max=self._batch_max,
            ),
        ]


def broadcaster(conditions: Conditions, layers: Layers) -> Build:
    retries = {name: conditions.time(0.2, 1.5) for name in conditions.names}

    def build(me: NodeId, rng: Random) -> Stack:
        mesh = Mesh(me, rng, peers=conditions.names, retry_every=retries[me])
        return Stack([mesh, *layers(me, rng)])

    return build


class Once(Checker):
    """Checks that each node delivers each published message once, and never loses it."""

    def __init__(self) -> None:
        self.delivered: dict[NodeId, dict[MessageId, None]] = {}
        # The publisher of each payload, and how often this publisher had started by then.
        self.published: dict[bytes, tuple[NodeId, int]] = {}

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        if isinstance(event, Delivered):
            mine = self.delivered.setdefault(node, {})
            if event.id in mine:
                raise Violation(f"{node} delivered message {event.id} twice")
            if event.payload not in self.published:
                raise Violation(f"{node} delivered {event.payload!r}, which no node published")
            mine[event.id] = None
        elif isinstance(event, Lost):
            raise Violation(f"{node} reports {event}, but the nodes keep all messages")

    def after(self, sim: Simulation, step: Step) -> None:
        if step.kind == "start":
            if sim.nodes[step.node].disk is None:
                self.delivered.pop(step.node, None)
            inventory = sim.protocol(step.node, Recovery).inventory
            for id in self.delivered.get(step.node, {}):
                if id not in inventory:
                    raise Violation(f"{step.node} delivered message {id}, but forgot it in a crash")

    def finish(self, sim: Simulation) -> None:
        if left := self.left(sim):
            raise Violation(left)

    def left(self, sim: Simulation) -> str:
        """Describe a message that some node lacks, or return an empty string.

        Each node must hold all messages that any node has delivered and still has. It must also
        hold all messages from publishers that have not restarted since they published.
        """
        delivered = {id: None for mine in self.delivered.values() for id in mine}
        for node in sim.nodes:
            held = sim.protocol(node, Recovery).held
            for id in delivered:
                if id not in held:
                    return f"{node} never received message {id}"
            payloads = dict.fromkeys(held.values())
            for payload, (origin, starts) in self.published.items():
                if payload not in payloads and sim.nodes[origin].starts == starts:
                    return f"{node} never received {payload!r} from {origin}"
            if len(payloads) != len(held):
                return f"{node} stores one message under two ids"
        return ""


def play(sim: Simulation, nodes: int) -> Figures:
    conditions = Conditions(sim, BROADCAST.nodes_min, nodes, STORM_SECONDS)
    checker = Once()
    sim.check(checker)
    layers = Layers(conditions)
    build = broadcaster(conditions, layers)
    for name in conditions.names:
        sim.add(name, build, durable=name in layers.durable)
    strikes = weather_a_storm(conditions, checker, lambda: not checker.left(sim))
    return {"messages": len(checker.published), "strikes": strikes}


def weather_a_storm(
    conditions: Conditions, checker: Once, done: Callable[[], bool]
) -> dict[str, int]:
    """Publish during a storm, then run until `done`. Return the number of faults by kind."""
    sim, names = conditions.sim, conditions.names
    storm = DrawnStorm(conditions, away_max=max(1, (len(names) - 1) // 2))
    conditions.begin()
    storm.begin()
    for _ in range(conditions.count(MESSAGES)):
        when = sim.rng.uniform(0.0, conditions.storm_seconds)
        sim.call(when, lambda: publish(sim, checker, names))
    sim.run(until=conditions.storm_seconds)
    storm.calm()
    conditions.calm(DELAY_MAX)
    conditions.run_until(done, PATIENCE)
    return storm.strikes


def publish(sim: Simulation, checker: Once, names: list[NodeId]) -> None:
    """Publish a new payload at a random node, if that node is running."""
    node = sim.rng.choice(names)
    if sim.nodes[node].stack is not None and not sim.nodes[node].paused:
        payload = b"%s says %d" % (node.encode(), len(checker.published))
        checker.published[payload] = (node, sim.nodes[node].starts)
        sim.ask(node, Publish(payload))


BROADCAST = Scenario("broadcast", "durable broadcast that survives a storm of faults", 6, play)
