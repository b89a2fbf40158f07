"""Storms for the coordination protocols, and faults in the middle of a protocol step."""

from __future__ import annotations

from collections.abc import Sequence

from oncecast.kernel.protocol import Emit, NodeId, Send, Value
from oncecast.lab.scenarios.conditions import DrawnStorm
from oncecast.simulator.checkers import Checker
from oncecast.simulator.faults import Storm
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.step import Step


class SteadyStorm(DrawnStorm):
    """A storm in which monotonic clocks never jump, and drift only within each node's limit."""

    def _skew(self, node: NodeId) -> bool:
        self.sim.skew(node, rate=self.conditions.rate(node))
        return True

    def assassinate(self, node: NodeId) -> None:
        if not self._over and self.sim.nodes[node].stack is not None:
            self.rng.choice((self._crash, self._bounce))(node)


class LosslessStorm(Storm):
    """A storm that delays nodes and messages but never loses or reorders a message."""

    def __init__(self, sim: Simulation, nodes: Sequence[NodeId]) -> None:
        super().__init__(sim, nodes, away_max=len(nodes), every=0.2, lasting=0.5)
        sim.weather.set(fifo=True, loss=0.0, duplication=0.0)
        self._kinds = (self._pause, self._hold, self._slow, self._skew)


class Assassin(Checker):
    """Crashes nodes just before or after they send or emit an important value."""

    def __init__(self, storm: SteadyStorm, *victims: type[Value], chance: float = 0.02) -> None:
        self.storm, self.victims, self.chance = storm, victims, chance

    def after(self, sim: Simulation, step: Step) -> None:
        for effect in step.effects:
            sent = isinstance(effect, Send) and isinstance(effect.message, self.victims)
            emitted = isinstance(effect, Emit) and isinstance(effect.event, self.victims)
            if sent or emitted:
                self._consider(sim, step.node)
                return

    def _consider(self, sim: Simulation, node: NodeId) -> None:
        dice = self.storm.rng
        if dice.random() >= self.chance:
            return
        if dice.random() < 0.5:
            self.storm.assassinate(node)
        else:
            sim.call(0.0, lambda: self.storm.assassinate(node))
