"""Ring processes under attack, while honest clients put and read.

Attackers send well-typed, extreme messages of every type to ring stacks and replicas. They pose as
a client, and as a node that belongs to no group. No message may raise an exception, and everything
that a stack sends must be encodable. Afterwards, every honest operation must be complete, and the
history must be linearizable (SEC-1, SEC-3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from oncecast.kernel.codec import ENCODER
from oncecast.kernel.protocol import NodeId, Send, Value
from oncecast.lab.extremes import Extremes
from oncecast.lab.scenarios.histories import Histories
from oncecast.lab.scenarios.ring import settle
from oncecast.lab.scenarios.ring_checks import Owners
from oncecast.lab.scenarios.ring_clients import Clients
from oncecast.lab.scenarios.ring_draw import FAST, RingDraw
from oncecast.lab.scenarios.ring_world import RingWorld
from oncecast.lab.scenarios.scenario import Figures, Scenario
from oncecast.node.replica import CLIENTS
from oncecast.replication.events import Change
from oncecast.simulator.checkers import Checker
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.step import Step
from oncecast.wire.commands import AccessCommand
from oncecast.wire.frames import Call, Govern, LeaveRing

GHOST = NodeId("ghost:1")
EVIL = NodeId("client/evil")
ATTACKS_EVERY = 0.004  # seconds between attack messages
SECONDS = 4.0


class Encodable(Checker):
    """Checks that each message that a node sends can be encoded."""

    def after(self, sim: Simulation, step: Step) -> None:
        for effect in step.effects:
            if isinstance(effect, Send):
                ENCODER.encode(effect.message)


class Attack:
    """Sends extreme messages to all nodes of a world, each as one of `senders`."""

    def __init__(
        self,
        world: RingWorld,
        senders: Sequence[NodeId],
        # The types of the attack messages; empty for all types that nodes send.
        kinds: Sequence[type[Value]] = (),
    ) -> None:
        self._world, self._senders, self._kinds = world, senders, kinds
        self._rng = Random(world.sim.rng.getrandbits(64))
        self._extremes: dict[NodeId, Extremes] = {}
        self._until = 0.0
        self.sent = 0

    def begin(self, seconds: float) -> None:
        self._until = self._world.sim.now + seconds
        self._strike()

    def _strike(self) -> None:
        sim, rng = self._world.sim, self._rng
        nodes = [node for process in self._world.processes.values() for node in process.nodes()]
        node = sim.nodes[rng.choice(nodes)]
        if node.stack is not None:
            self.sent += 1
            node.receive(
                rng.choice(self._senders), self._drawn(node.me, node.stack.wiring.receiver)
            )
        if sim.now < self._until:
            sim.call(ATTACKS_EVERY, self._strike)

    def _drawn(self, node: NodeId, kinds: dict[type[Value], int]) -> Value:
        if node not in self._extremes:
            names = [*self._world.sim.nodes, *[p.group for p in self._world.processes.values()]]
            allowed = self._kinds or [kind for kind in kinds if kind not in CLIENTS]
            chosen = [kind for kind in kinds if kind in allowed]
            self._extremes[node] = Extremes(self._rng, chosen, (*names, *self._senders))
        message = self._extremes[node].message()
        while is_administrative(message):
            message = self._extremes[node].message()
        return message


def is_administrative(message: Value) -> bool:
    """Return whether a client could do harm with this message while no user exists."""
    if isinstance(message, Call):
        return isinstance(message.command, AccessCommand)
    if isinstance(message, Govern) and isinstance(message.request, Change):
        return bool(message.request.remove)
    return isinstance(message, LeaveRing)


def found(sim: Simulation, drawn: RingDraw) -> tuple[RingWorld, Clients]:
    """Start a ring and its honest clients, and return both."""
    world = RingWorld(sim, drawn)
    sim.listener = world.hear
    world.found(drawn.processes)
    settle(sim, world, lambda: True)
    clients = Clients(sim, world)
    sim.check(Encodable())
    clients.begin(sim.now + drawn.seconds)
    return world, clients


def play(sim: Simulation, nodes: int) -> Figures:
    world, clients = found(sim, RingDraw(processes=nodes, joins=0, seconds=SECONDS))
    sim.check(Histories(), clients, Owners(sim, world, clients.topics))
    attacks = (Attack(world, (GHOST, NodeId(f"{GHOST}/g-x"))), Attack(world, (EVIL,), CLIENTS))
    for attack in attacks:
        attack.begin(SECONDS)
    sim.run(until=sim.now + SECONDS)
    clients.look_at_all()
    settle(sim, world, lambda: clients.done)
    return {
        "attacks": sum(attack.sent for attack in attacks),
        "messages": sum(len(each[0].seen) for each in clients.subscribers.values()),
    }


def play_insider(sim: Simulation, nodes: int) -> int:
    """Let the nodes of the ring send extreme messages. Return how many they sent.

    Nodes are trusted, so guarantees may break. However, no message may raise an exception. States
    are not compared, because a replica that finds a real difference stops.
    """
    options = (replace(FAST, compare_every=0.0),)
    drawn = RingDraw(processes=nodes, joins=0, seconds=SECONDS, options=options)
    world, _ = found(sim, drawn)
    attack = Attack(world, tuple(sim.nodes))
    attack.begin(SECONDS)
    sim.run(until=sim.now + SECONDS)
    return attack.sent


HOSTILE = Scenario(
    "hostile",
    "a ring of replica groups that receives extreme messages from strangers",
    4,
    play,
    nodes_min=3,
)
