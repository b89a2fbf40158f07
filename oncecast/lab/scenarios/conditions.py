"""The conditions that a seed draws for a run: nodes, length, delays, losses, clocks and options.

A storm with fixed options misses bugs that only other options reveal. Each node gets its own
options, and a few runs are much longer than most.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log
from random import Random

from oncecast.kernel.protocol import NodeId
from oncecast.simulator.faults import Storm
from oncecast.simulator.latency import Exponential, Latency, LogNormal, Uniform
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.weather import LAN

LONG_SHARE, LONG = 0.02, 8.0  # fraction of long runs, and the factor by which they are longer
DRIFTS = (0.0, 0.01, 0.1, 0.25, 0.25)
# Delays range from far below a heartbeat to above it. Most are short, so that decisions are
# frequent.
DELAYS: tuple[Latency, ...] = (
    Uniform(0.0001, 0.002),
    Uniform(0.0001, 0.002),
    LAN,
    LogNormal(0.01, 1.5),
    Exponential(0.05),
    Uniform(0.05, 0.6),
)
LOSSES = (0.0, 0.0, 0.02, 0.1)
DUPLICATIONS = (0.0, 0.0, 0.05, 0.3)
LOOK_EVERY = 0.25


class Conditions:
    """The conditions of one run. `rng` draws the options, not the events of the run."""

    def __init__(self, sim: Simulation, least: int, most: int, seconds: float) -> None:
        """Draw `least` to `most` nodes and a storm that lasts `seconds` on average."""
        self.sim = sim
        rng = self.rng = Random(f"{sim.seed}/conditions")
        self.names = [NodeId(f"n{index}") for index in range(rng.randint(least, most))]
        self.stretch = LONG if rng.random() < LONG_SHARE else rng.uniform(0.4, 1.2)
        self.storm_seconds = seconds * self.stretch
        self.latency = rng.choice(DELAYS)
        self.loss, self.duplication = rng.choice(LOSSES), rng.choice(DUPLICATIONS)
        usual, mixed = rng.choice(DRIFTS), rng.random() < 0.5
        self.drifts = {name: rng.choice(DRIFTS) if mixed else usual for name in self.names}

    def count(self, mean: int) -> int:
        """Return how often an event happens in this run, in proportion to its length."""
        return max(1, round(mean * self.stretch * self.rng.uniform(0.5, 1.5)))

    def time(self, least: float, most: float) -> float:
        """Return a time between the limits, drawn from a log-uniform distribution."""
        return least * exp(log(most / least) * self.rng.random())

    def rate(self, node: NodeId) -> float:
        """Return a clock rate for the node, often at the limit of its drift."""
        slow, fast = 1 - self.drifts[node], 1 + self.drifts[node]
        return self.rng.choice((slow, fast, self.rng.uniform(slow, fast)))

    def begin(self) -> None:
        """Set the clocks of existing nodes, and the network."""
        for name in self.names:
            if name in self.sim.nodes:
                self.sim.skew(name, rate=self.rate(name))
        self.sim.weather.set(latency=self.latency, loss=self.loss, duplication=self.duplication)

    def calm(self, delay_max: float) -> None:
        """Limit the delays and their variation, so that timeouts can adapt."""
        delay = self.time(0.0001, delay_max)
        self.sim.weather.set(latency=Uniform(0.9 * delay, delay))

    def run_until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Run until `done()` or for `seconds`. Return whether `done()` is true."""
        limit = self.sim.now + seconds
        while not done() and self.sim.now < limit:
            self.sim.run(until=self.sim.now + LOOK_EVERY)
        return done()


class DrawnStorm(Storm):
    """A storm whose intensity depends on the conditions.

    Nodes may also restart immediately, so that they receive messages sent before the restart.
    """

    def __init__(self, conditions: Conditions, *, away_max: int) -> None:
        every, lasting = conditions.time(0.1, 0.5), conditions.time(0.4, 2.0)
        super().__init__(
            conditions.sim, conditions.names, away_max=away_max, every=every, lasting=lasting
        )
        self.conditions = conditions
        self.loss, self.duplication = conditions.loss, conditions.duplication
        self.prominent: Callable[[], list[NodeId]] = list  # the nodes that fail more often
        self._kinds += (self._bounce, self._bounce)

    def _victim(self) -> NodeId:
        prominent = self.prominent()
        if prominent and self.rng.random() < 0.5:
            return self.rng.choice(prominent)
        return super()._victim()

    def _bounce(self, node: NodeId) -> bool:
        """Restart a node immediately, or before messages in flight have arrived."""
        state = self.sim.nodes[node]
        if node in self.away or state.stack is None or state.paused:
            return False
        self.sim.crash(node)
        away = self.rng.choice((0.0, self._some(0.01)))
        self.sim.call(away, lambda: self._restart(node))
        return True
