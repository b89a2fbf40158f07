"""Shuffle: every node keeps a small random sample of peers, and exchanges parts of it.

It is the passive-view shuffle of HyParView (Leitao, Pereira, Rodrigues, DSN 2007). Once per second
a node sends part of its view on a random walk. The last node of the walk returns part of its own
view. With four steps, this causes six events per node per second. `sim bench` uses this scenario.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import ClassVar

from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.scenario import Figures, Scenario
from oncecast.lab.scenarios.shuffle_messages import Return, Tick, Walk
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.step import Step

VIEW_MAX = 30
SAMPLE = 7
WALK = 4
EVERY = 1.0
DICE = 30  # number of random bits to draw at a time: one digit of a Python integer


class Shuffle(Protocol):
    name = "shuffle"
    Message: ClassVar = Walk | Return
    Timer: ClassVar = Tick

    def __init__(self, me: NodeId, rng: Random, *, contacts: tuple[NodeId, ...]) -> None:
        super().__init__(me, rng)
        self.view = list(contacts)
        self.sent = 0  # the index in the view at which the last sample began

    def start(self) -> None:
        self.later(EVERY * self.rng.random(), Tick())

    def timeout(self, timer: Tick) -> None:
        view = self.view
        anyone = view[self.rng.getrandbits(DICE) % len(view)]
        self.send(anyone, Walk(self.me, WALK - 1, (self.me, *self._sample())))
        self.later(EVERY, timer)

    def receive(self, sender: NodeId, message: Walk | Return) -> None:
        if isinstance(message, Walk):
            if message.steps > 0:
                view = self.view
                anyone = view[self.rng.getrandbits(DICE) % len(view)]
                self.send(anyone, Walk(message.origin, message.steps - 1, message.sample))
                return
            self.send(message.origin, Return(self._sample()))
        self._merge(message.sample)

    def _sample(self) -> tuple[NodeId, ...]:
        """Return consecutive peers. The view has no order, so they are a random sample."""
        view = self.view
        self.sent = start = self.rng.getrandbits(DICE) % len(view)
        return tuple(view[start : start + SAMPLE])

    def _merge(self, sample: Sequence[NodeId]) -> None:
        """Add the new peers. If the view is full, they replace the peers that were sent last."""
        view = self.view
        new = set(sample)  # used for lookups only, because a set must not be iterated
        if self.me in new or not new.isdisjoint(view):
            new.difference_update(view, [self.me])
            sample = [peer for peer in sample if peer in new]
        excess = len(view) + len(sample) - VIEW_MAX
        if excess > 0:
            start = min(self.sent, len(view) - excess)
            view[start : start + excess] = sample
        else:
            view += sample


class Views(Checker):
    """Checks that a view has no duplicates, omits its own node, and is full at the end."""

    def after(self, sim: Simulation, step: Step) -> None:
        if step.node not in sim.nodes or sim.nodes[step.node].stack is None:
            return  # the simulator's action concerns several nodes, or a crashed node
        view = view_of(sim, step.node)
        if len(set(view)) != len(view) or step.node in view or len(view) > VIEW_MAX:
            raise Violation(f"{step.node} has the invalid view {view} (limit {VIEW_MAX})")

    def finish(self, sim: Simulation) -> None:
        enough = min(VIEW_MAX, len(sim.nodes) - 1)
        for node in sim.nodes:
            if len(view_of(sim, node)) < enough:
                raise Violation(
                    f"{node} has the view {view_of(sim, node)}, expected {enough} nodes"
                )


def view_of(sim: Simulation, node: NodeId) -> list[NodeId]:
    return sim.protocol(node, Shuffle).view


def populate(sim: Simulation, nodes: int) -> None:
    """Add nodes with a ring of contacts, which shuffling turns into a random graph."""
    names = [NodeId(f"n{index}") for index in range(nodes)]

    def build(me: NodeId, rng: Random) -> Stack:
        here = int(me[1:])
        contacts = dict.fromkeys(names[(here + step) % nodes] for step in (1, 2, 3))
        contacts.pop(me, None)
        return Stack([Shuffle(me, rng, contacts=tuple(contacts))])

    for name in names:
        sim.add(name, build)


def play(sim: Simulation, nodes: int) -> Figures:
    sim.check(Views())
    populate(sim, nodes)
    sim.run(until=60.0)
    return {"messages": sim.done}


SHUFFLE = Scenario("shuffle", "random partial views, maintained by exchanging samples", 50, play)
