"""A storm: random faults within a budget, followed by a calm period.

During the storm, faults occur at random times and are repaired some time later. `calm` repairs the
remaining ones, so that the eventual guarantees of the protocols can be checked afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from oncecast.kernel.compiling import mypyc_attr
from oncecast.kernel.protocol import NodeId
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.weather import Front


@mypyc_attr(allow_interpreted_subclasses=True)
class Storm:
    """Random faults. At most `away_max` nodes are crashed, paused or isolated at the same time."""

    def __init__(
        self,
        sim: Simulation,
        nodes: Sequence[NodeId],
        *,
        away_max: int,
        every: float = 1.0,
        lasting: float = 2.0,
    ) -> None:
        self.sim, self.nodes = sim, list(nodes)
        self.away_max, self.every, self.lasting = away_max, every, lasting
        self.rng = Random(f"{sim.seed}/storm")
        self.away: dict[NodeId, Callable[[], None]] = {}  # a function that restores each node
        self.strikes: dict[str, int] = {}
        self.loss = self.duplication = 0.0  # the values while no fault changes them
        self._over = False
        self._kinds: tuple[Callable[[NodeId], bool], ...] = (
            self._crash,
            self._pause,
            self._fail_sync,
            self._fill_disk,
            self._cut_off,
            self._cut_off_one_way,
            self._hold,
            self._split,
            self._slow,
            self._lose,
            self._duplicate,
            self._skew,
        )

    def leave_out(self, part: float) -> None:
        """Disable a random subset of the fault kinds, because some bugs need calm in one area."""
        kinds = list(dict.fromkeys(self._kinds))
        left_out = self.rng.sample(kinds, round(part * len(kinds)))
        self._kinds = tuple(kind for kind in self._kinds if kind not in left_out)

    def begin(self) -> None:
        self.sim.call(self._some(self.every), self._strike)

    def calm(self) -> None:
        """Repair all faults and cause no more."""
        self._over = True
        self.sim.weather.set(loss=0.0, duplication=0.0)
        self.sim.repair()
        for back in dict.fromkeys(self.away.values()):
            self._return(back)
        for node in self.nodes:
            self._restart(node)

    def resume(self) -> None:
        """Resume causing faults after `calm`."""
        self._over = False
        self.begin()

    def _some(self, mean: float) -> float:
        return self.rng.uniform(0.0, 2.0 * mean)

    def _strike(self) -> None:
        if self._over:
            return
        strike = self.rng.choice(self._kinds)
        if strike(self._victim()):
            name = strike.__name__.strip("_")
            self.strikes[name] = self.strikes.get(name, 0) + 1
        self.begin()

    def _victim(self) -> NodeId:
        return self.rng.choice(self.nodes)

    # -- node faults --

    def _leave(self, nodes: Sequence[NodeId], back: Callable[[], None]) -> None:
        for node in nodes:
            self.away[node] = back
        self.sim.call(self._some(self.lasting), lambda: self._return(back))

    def _return(self, back: Callable[[], None]) -> None:
        """Repair all nodes that one fault hit, unless `calm` has already repaired them."""
        nodes = [node for node, way in self.away.items() if way is back]
        for node in nodes:
            del self.away[node]
        if nodes:
            back()

    def _spare(self, node: NodeId) -> bool:
        """Return whether the budget allows a fault on this node."""
        state = self.sim.nodes[node]
        return node not in self.away and len(self.away) < self.away_max and state.halted is None

    def _restart(self, node: NodeId) -> None:
        disk = self.sim.nodes[node].disk
        if disk is not None:
            disk.mend()
        if self.sim.nodes[node].stack is None:
            self.sim.restart(node)

    def _crash(self, node: NodeId) -> bool:
        if not self._spare(node):
            return False
        self.sim.crash(node)
        self._leave([node], lambda: self._restart(node))
        return True

    def _pause(self, node: NodeId) -> bool:
        if not self._spare(node):
            return False
        self.sim.pause(node)
        self._leave([node], lambda: self.sim.resume(node))
        return True

    def _fail_sync(self, node: NodeId) -> bool:
        """Make the next fsync fail, which stops the node. Restart it later."""
        disk = self.sim.nodes[node].disk
        if disk is None or not self._spare(node):
            return False
        disk.fail_sync()
        self._leave([node], lambda: self._restart(node))
        return True

    def _fill_disk(self, node: NodeId) -> bool:
        disk = self.sim.nodes[node].disk
        if disk is None or not self._spare(node):
            return False
        disk.fill()
        self._leave([node], lambda: self._restart(node))
        return True

    def _cut_off(self, node: NodeId) -> bool:
        return self._front_away(node, lambda: self.sim.isolate(node))

    def _cut_off_one_way(self, node: NodeId) -> bool:
        return self._front_away(node, lambda: self.sim.partition([node], one_way=True))

    def _hold(self, node: NodeId) -> bool:
        return self._front_away(node, lambda: self.sim.hold([node]))

    def _front_away(self, node: NodeId, raise_front: Callable[[], list[Front]]) -> bool:
        if not self._spare(node):
            return False
        fronts = raise_front()
        self._leave([node], lambda: self.sim.repair(fronts))
        return True

    # -- network faults --

    def _split(self, node: NodeId) -> bool:
        """Partition the nodes. The nodes on the smaller side count as away."""
        limit = min(self.away_max - len(self.away), len(self.nodes) // 2)
        there = [node for node in self.nodes if self._spare(node)]
        if limit < 1 or not there:
            return False
        side = self.rng.sample(there, self.rng.randint(1, min(limit, len(there))))
        fronts = self.sim.partition(side)
        self._leave(side, lambda: self.sim.repair(fronts))
        return True

    def _slow(self, node: NodeId) -> bool:
        fronts = self.sim.slow([node], extra=self._some(0.5))
        self.sim.call(self._some(self.lasting), lambda: self.sim.repair(fronts))
        return True

    def _lose(self, node: NodeId) -> bool:
        self.sim.weather.set(loss=self.rng.uniform(0.0, 0.3))
        self.sim.call(self._some(self.lasting), lambda: self._unless_over(loss=self.loss))
        return True

    def _duplicate(self, node: NodeId) -> bool:
        self.sim.weather.set(duplication=self.rng.uniform(0.0, 0.3))
        usual = self.duplication
        self.sim.call(self._some(self.lasting), lambda: self._unless_over(duplication=usual))
        return True

    def _unless_over(self, loss: float | None = None, duplication: float | None = None) -> None:
        if not self._over:
            self.sim.weather.set(loss=loss, duplication=duplication)

    def _skew(self, node: NodeId) -> bool:
        self.sim.skew(node, rate=self.rng.uniform(0.8, 1.25), ahead=self._some(0.05))
        return True
