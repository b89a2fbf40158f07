"""Churn as in the Chord paper: nodes join and leave at a given rate, with one lookup per second."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from oncecast.dht.chord import Chord
from oncecast.dht.events import RootFound
from oncecast.dht.identifiers import BYTES, Key
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.chord import Owners
from oncecast.lab.scenarios.chord_steady import Steady
from oncecast.simulator.latency import Exponential
from oncecast.simulator.simulated import Simulation

STABILIZE = 30.0  # mean seconds between rounds, which are drawn from 15 to 45
DELAY = 0.05
TIMEOUT = 0.5
SUCCESSORS = 20
CONTACTS = 3


class Churn:
    """A ring without links. As in the paper, only a timeout reveals that a node has left."""

    def __init__(self, seed: int, nodes: int, rate: float) -> None:
        self.rate = rate
        self.owners = Owners()
        self.sim = Simulation(seed, latency=Exponential(DELAY), listener=self._heard)
        self.joined = 0
        names = [NodeId(f"n{seed}-{index}") for index in range(nodes)]
        steady = Steady.of(names)
        for name in names:
            self.sim.add(name, lambda me, rng: Stack([self._make(me, rng, steady=steady)]))

    def _make(
        self, me: NodeId, rng: Random, contacts: Iterable[NodeId] = (), steady: Steady | None = None
    ) -> Chord:
        return Chord(
            me,
            rng,
            contacts=contacts,
            members=() if steady is None else steady.members(me, SUCCESSORS),
            successors_max=SUCCESSORS,
            stabilize_every=STABILIZE,
            answer_within=TIMEOUT,
            links=False,
        )

    def _heard(self, node: NodeId, event: Value) -> None:
        self.owners.heard(self.sim, node, event)

    @property
    def answered(self) -> list[RootFound]:
        return self.owners.answered

    @property
    def failed(self) -> int:
        """Return how many lookups had no answer or a wrong answer."""
        return len(self.owners.asked) + len(self.owners.astray)

    def play(self, lookups: int) -> None:
        for happen, rate in ((self._join, self.rate), (self._leave, self.rate)):
            self._again(happen, rate, lookups)
        for second in range(lookups):
            self.sim.call(second + self.sim.rng.random(), self._look_up)
        self.sim.run(until=lookups + 60.0)

    def _again(self, happen: Callable[[], None], rate: float, until: float) -> None:
        delay = self.sim.rng.expovariate(rate)

        def event() -> None:
            happen()
            self._again(happen, rate, until)

        if self.sim.now + delay < until:
            self.sim.call(delay, event)

    def _join(self) -> None:
        self.joined += 1
        contacts = self.sim.rng.sample(self.sim.alive(), CONTACTS)
        self.sim.add(
            NodeId(f"j{self.joined}"), lambda me, rng: Stack([self._make(me, rng, contacts)])
        )

    def _leave(self) -> None:
        node = self.sim.rng.choice(self.sim.alive())
        self.sim.crash(node)
        self.owners.left(self.sim, node)

    def _look_up(self) -> None:
        rng = self.sim.rng
        self.owners.ask(self.sim, rng.choice(self.sim.alive()), Key(rng.randbytes(BYTES)))
