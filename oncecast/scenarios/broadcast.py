"""Broadcast through a storm: every message ends at every node, once, whatever breaks meanwhile.

The stack is Mesh, Plumtree and Recovery with a disk below. Nodes publish while a storm crashes,
pauses, cuts off and skews them, fails their disks and worsens the network; then it is calm.
"""

from __future__ import annotations

from random import Random

from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.overlay.events import Delivered, Lost, MessageId, Publish
from oncecast.overlay.mesh import Mesh
from oncecast.overlay.plumtree import Plumtree
from oncecast.overlay.recovery import Recovery
from oncecast.runtime.checkers import Checker, Violation
from oncecast.runtime.faults import Storm
from oncecast.runtime.simulated import Build, Simulation
from oncecast.runtime.trace import Step
from oncecast.scenarios.scenario import Figures, Scenario

STORM_SECONDS = 20.0
CALM_SECONDS = 40.0
MESSAGES = 60


def broadcaster(names: list[NodeId]) -> Build:
    def build(me: NodeId, rng: Random) -> Stack:
        peers = [name for name in names if name != me]
        return Stack(
            [
                Mesh(me, rng, peers=peers),
                Plumtree(me, rng),
                Recovery(me, rng, snapshot_every=40),
            ]
        )

    return build


def recovery_of(sim: Simulation, node: NodeId) -> Recovery:
    stack = sim.nodes[node].stack
    assert stack is not None, f"{node} is down"
    top = stack.protocols[-1]
    assert isinstance(top, Recovery)
    return top


class Once(Checker):
    """What is published ends at every node, no node delivers it twice, none forgets it."""

    def __init__(self) -> None:
        self.delivered: dict[NodeId, dict[MessageId, None]] = {}
        self.published: dict[bytes, tuple[NodeId, int]] = {}  # by whom, and in which of its lives

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        if isinstance(event, Delivered):
            mine = self.delivered.setdefault(node, {})
            if event.id in mine:
                raise Violation(f"{node} delivered {event.id} twice")
            if event.payload not in self.published:
                raise Violation(f"{node} delivered {event.payload!r}, which nobody published")
            mine[event.id] = None
        elif isinstance(event, Lost):
            raise Violation(f"{node} lost {event} though everything is kept")

    def after(self, sim: Simulation, step: Step) -> None:
        if step.kind == "start":
            inventory = recovery_of(sim, step.node).inventory
            for id in self.delivered.get(step.node, {}):
                if id not in inventory:
                    raise Violation(f"{step.node} delivered {id} and forgot it in a crash")

    def finish(self, sim: Simulation) -> None:
        """All hold what anyone delivered, and what was published by a node that lives on."""
        delivered = {id: None for mine in self.delivered.values() for id in mine}
        for node in sim.nodes:
            held = recovery_of(sim, node).held
            for id in delivered:
                if id not in held:
                    raise Violation(f"{node} never got {id}")
            payloads = dict.fromkeys(held.values())
            for payload, (origin, life) in self.published.items():
                if payload not in payloads and sim.nodes[origin].life == life:
                    raise Violation(f"{node} never got {payload!r} of {origin}")
            if len(payloads) != len(held):
                raise Violation(f"{node} holds one message under two names")


def play(sim: Simulation, nodes: int) -> Figures:
    names = [NodeId(f"n{index}") for index in range(nodes)]
    checker = Once()
    sim.check(checker)
    for name in names:
        sim.add(name, broadcaster(names), durable=True)
    storm = Storm(sim, names, away_max=max(1, (nodes - 1) // 2))
    storm.begin()
    for _ in range(MESSAGES):
        sim.call(sim.rng.uniform(0.0, STORM_SECONDS), lambda: publish(sim, checker, names))
    sim.run(until=STORM_SECONDS)
    storm.calm()
    sim.run(until=STORM_SECONDS + CALM_SECONDS)
    return {"messages": len(checker.published), "strikes": storm.strikes}


def publish(sim: Simulation, checker: Once, names: list[NodeId]) -> None:
    """Any node that is up says something that was never said before."""
    node = sim.rng.choice(names)
    if sim.nodes[node].stack is not None and not sim.nodes[node].paused:
        payload = b"%s says %d" % (node.encode(), len(checker.published))
        checker.published[payload] = (node, sim.nodes[node].life)
        sim.ask(node, Publish(payload))


BROADCAST = Scenario("broadcast", "durable broadcast through a storm of faults", 5, play)
