"""Checks that no key of the ring ever has two owners (REP-6)."""

from __future__ import annotations

from itertools import combinations

from oncecast.broker.holdings import Holdings
from oncecast.dht.identifiers import Key, up_to
from oncecast.lab.scenarios.ring_world import RingWorld
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Simulation

LOOK_EVERY = 0.05


class Owners(Checker):
    """Checks that no topic is served by two groups, and that decided arcs never overlap."""

    def __init__(self, sim: Simulation, world: RingWorld, topics: list[str]) -> None:
        self._sim, self._world, self._topics = sim, world, topics
        self.moves = 0
        self._last: dict[str, str] = {}
        # The newest state seen of each group. If its replicas crash, they may lose the applied
        # state, but not the log.
        self._arcs: dict[str, tuple[int, Key | None, Key]] = {}
        sim.call(LOOK_EVERY, self._look)

    def _look(self) -> None:
        self._sim.call(LOOK_EVERY, self._look)
        owners: dict[str, str] = {}
        for process in self._world.processes.values():
            for group, parts in process.replicas.items():
                node = self._sim.nodes[process.replica(group)]
                registry = parts.service.machine.registry
                if registry.holdings is None:
                    continue
                self._note(registry.holdings, registry.last_slot)
                if node.stack is not parts.stack or not parts.service.leading:
                    continue
                if parts.service.group.leads(node.clock.local(self._sim.now)):
                    for topic in self._topics:
                        if registry.elsewhere(topic) is None:
                            other = owners.setdefault(topic, group)
                            if other != group:
                                raise Violation(
                                    f"topic {topic} is owned by both {other} and {group}"
                                )
        self._check_arcs()
        for topic, group in owners.items():
            self.moves += self._last.get(topic, group) != group
            self._last[topic] = group

    def finish(self, sim: Simulation) -> None:
        """Check that a group's replicas have the same state if they have applied the same slots."""
        sums: dict[tuple[str, int], int] = {}
        for process in self._world.processes.values():
            for group, parts in process.replicas.items():
                if sim.nodes[process.replica(group)].stack is parts.stack:
                    machine = parts.service.machine
                    found = machine.checksum()
                    if sums.setdefault((group, machine.registry.last_slot), found) != found:
                        raise Violation(f"replicas of {group} have different states")

    def _note(self, holdings: Holdings, slot: int) -> None:
        if slot >= self._arcs.get(holdings.group, (-1,))[0]:
            low = holdings.low if holdings.frozen is None else holdings.frozen.until
            low = None if holdings.frozen is not None and low == holdings.position else low
            self._arcs[holdings.group] = slot, low, holdings.position

    def _check_arcs(self) -> None:
        arcs = [(group, low, high) for group, (_, low, high) in self._arcs.items()]
        for (one, low, high), (other, its_low, its_high) in combinations(arcs, 2):
            if low is None or its_low is None:
                continue
            if up_to(low, its_high, high) or up_to(its_low, high, its_high):
                raise Violation(f"the arcs of {one} and {other} overlap")
