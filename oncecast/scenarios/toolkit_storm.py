"""Storms for the toolkit, and an assassin that strikes in the middle of a protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oncecast.kernel.protocol import Emit, NodeId, Send, Value
from oncecast.runtime.checkers import Checker
from oncecast.runtime.faults import Storm
from oncecast.runtime.simulated import Simulation
from oncecast.runtime.trace import Step
from oncecast.scenarios.conditions import Conditions


class SteadyStorm(Storm):
    """A storm in which no monotonic clock jumps, or runs outside the drift of its node.

    Nodes also restart at once, so that a new life hears what was sent to the life before it.
    """

    def __init__(self, conditions: Conditions, *, away_max: int) -> None:
        every, lasting = conditions.time(0.1, 0.5), conditions.time(0.4, 2.0)
        super().__init__(
            conditions.sim, conditions.names, away_max=away_max, every=every, lasting=lasting
        )
        self.conditions = conditions
        self.prominent: Callable[[], list[NodeId]] = list  # who is struck more often than others
        self._kinds += (self._bounce, self._bounce)

    def _victim(self) -> NodeId:
        prominent = self.prominent()
        if prominent and self.rng.random() < 0.5:
            return self.rng.choice(prominent)
        return super()._victim()

    def _bounce(self, node: NodeId) -> bool:
        """Restart a node: without delay, or before what is in flight has arrived."""
        state = self.sim.nodes[node]
        if node in self.away or state.stack is None or state.paused:
            return False
        self.sim.crash(node)
        away = self.rng.choice((0.0, self._some(0.01)))
        self.sim.call(away, lambda: self._restart(node))
        return True

    def _lose(self, node: NodeId) -> bool:
        self.sim.weather.set(loss=self.rng.uniform(0.0, 0.3))
        usual = self.conditions.loss
        self.sim.call(self._some(self.lasting), lambda: self._unless_over(loss=usual))
        return True

    def _duplicate(self, node: NodeId) -> bool:
        self.sim.weather.set(duplication=self.rng.uniform(0.0, 0.3))
        usual = self.conditions.duplication
        self.sim.call(self._some(self.lasting), lambda: self._unless_over(duplication=usual))
        return True

    def _unless_over(self, loss: float | None = None, duplication: float | None = None) -> None:
        if not self._over:
            self.sim.weather.set(loss=loss, duplication=duplication)

    def _skew(self, node: NodeId) -> bool:
        self.sim.skew(node, rate=self.conditions.rate(node))
        return True

    def assassinate(self, node: NodeId) -> None:
        if not self._over and self.sim.nodes[node].stack is not None:
            self.rng.choice((self._crash, self._bounce))(node)


class LosslessStorm(Storm):
    """Members and messages are late, and nothing is ever lost or out of order."""

    def __init__(self, sim: Simulation, nodes: Sequence[NodeId]) -> None:
        super().__init__(sim, nodes, away_max=len(nodes), every=0.2, lasting=0.5)
        sim.weather.set(fifo=True, loss=0.0, duplication=0.0)
        self._kinds = (self._pause, self._hold, self._slow, self._skew)


class Assassin(Checker):
    """Crashes nodes that are about to say or hear something that matters, or just have."""

    def __init__(self, storm: SteadyStorm, *victims: type[Value], chance: float = 0.02) -> None:
        self.storm, self.victims, self.chance = storm, victims, chance

    def after(self, sim: Simulation, step: Step) -> None:
        for effect in step.effects:
            said = isinstance(effect, Send) and isinstance(effect.message, self.victims)
            heard = isinstance(effect, Emit) and isinstance(effect.event, self.victims)
            if said or heard:
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
