"""OPS-2: nodes are upgraded in any order during a storm; no replica gets an unknown command."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from oncecast.broker.events import Execute
from oncecast.broker.service import Service, _decode
from oncecast.kernel.protocol import NodeId
from oncecast.kernel.stack import Stack
from oncecast.node import assemble as assembling
from oncecast.replication.events import Decided
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.simulator.checkers import Violation
from oncecast.simulator.simulated import Simulation
from oncecast.wire import commands as do
from oncecast.wire import levels
from oncecast.wire.retention import Policy

OPTIONS = GroupOptions(heartbeat=0.2, suspicion=0.6, resend=0.1, replace_after=60.0)
NODES = [NodeId(f"n{index}") for index in range(3)]
KEEP = Policy(keep_all=True)
PATIENCE = 60.0


class Cautious(Service):
    """The service of a program that cannot decode commands above its level."""

    def learn(self, slot: int, value: bytes) -> None:
        self._check(value)
        super().learn(slot, value)

    def _decided(self, event: Decided) -> None:
        self._check(event.value)
        super()._decided(event)

    def _check(self, value: bytes) -> None:
        kind = type(_decode(value))
        if levels.level_of(kind) > self._known_level:
            raise Violation(f"{self.me} got a {kind.__name__} above its level {self._known_level}")


class Upgrades:
    """A three-node group that a storm restarts at a higher level, in random order."""

    def __init__(self, seed: int) -> None:
        self.sim = Simulation(seed, loss=0.02, duplication=0.02)
        self.installed = dict.fromkeys(NODES, 1)  # the program installed on each node
        self.running = dict.fromkeys(NODES, 1)  # the program that each node ran last
        self.tokens = 0
        for node in NODES:
            self.sim.add(node, self.build, durable=True)
        self.until(lambda: self.members() == set(NODES))

    def build(self, me: NodeId, rng: Random) -> Stack:
        self.running[me] = self.installed[me]
        contacts = () if me == NODES[0] else tuple(node for node in NODES if node != me)
        level = self.installed[me]
        parts = assembling.assemble(me, rng, options=OPTIONS, contacts=contacts, level=level)
        return parts.stack

    def replicas(self) -> list[Paxos]:
        return [self.sim.protocol(node, Paxos) for node in self.sim.alive()]

    def members(self) -> set[NodeId]:
        return set().union(*(each.nodes() for each in self.replicas() if each.leads(each.now)))

    def until(self, done: Any) -> None:
        give_up = self.sim.now + PATIENCE
        while not done():
            assert self.sim.now < give_up, f"seed {self.sim.seed}: not done in {PATIENCE:g} s"
            self.run(0.2)

    def run(self, seconds: float) -> None:
        """Let time pass, and check that no level exceeds that of any running program."""
        end = self.sim.now + seconds
        while self.sim.now < end:
            self.sim.run(until=self.sim.now + 0.05)
            for node in self.sim.alive():
                level = self.sim.protocol(node, Paxos).level
                decided = self.sim.protocol(node, Service).machine.registry.level
                if not decided <= level <= min(self.running.values()):
                    raise Violation(f"{node} is at level {level}, {self.running}")

    def strike(self) -> None:
        rng, node = self.sim.rng, self.sim.rng.choice(self.sim.alive() or NODES)
        self.propose()
        match rng.randrange(6):
            case 0 | 1:
                fronts = self.sim.isolate(node)
                self.run(rng.uniform(0.1, 2.0))
                self.sim.repair(fronts)
            case 2 | 3:
                self.restart(node)
            case _:
                self.installed[node] = 2
                self.restart(node)
        self.run(rng.uniform(0.0, 1.5))

    def restart(self, node: NodeId) -> None:
        """Crash a live node, and start its installed program after a while."""
        if node in self.sim.alive():
            self.sim.bounce(node, away=self.sim.rng.uniform(0.0, 3.0))

    def propose(self) -> None:
        """Ask each node to execute a command of each level."""
        for node in self.sim.alive():
            self.tokens += 1
            for command in (do.CreateTopic("t", 0), do.SetPolicy("t", 0, KEEP)):
                self.sim.ask(node, Execute(1 << 50 | self.tokens, command))

    def policies(self) -> list[Policy | None]:
        machines = [self.sim.protocol(node, Service).machine for node in self.sim.alive()]
        found = [each.registry.topics.get("t") for each in machines]
        return [topic.policy if topic is not None else None for topic in found]


@pytest.mark.parametrize("seed", range(8, 16))
def test_level_rises_only_when_all_nodes_are_upgraded(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Make SetPolicy a level 2 command."""
    monkeypatch.setattr(do.SetPolicy, "feature_level", 2, raising=False)
    monkeypatch.setattr(assembling, "Service", Cautious)
    group = Upgrades(seed)
    for _ in range(20):
        group.strike()
        if min(group.running.values()) == 1:
            assert KEEP not in group.policies()
    group.until(lambda: len(group.sim.alive()) == len(NODES))
    group.installed = dict.fromkeys(NODES, 2)
    for node in NODES:
        group.restart(node)
        group.run(2.0)

    def upgraded() -> bool:
        group.propose()
        return group.policies() == [KEEP] * 3

    group.until(upgraded)
    assert {each.level for each in group.replicas()} == {2}
