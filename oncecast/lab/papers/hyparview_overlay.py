"""Overlays of thousands of nodes, grown as in the papers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from random import Random
from typing import Any, TypeVar

from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.lab.papers.tables import Say
from oncecast.overlay.events import NeighborDown, NeighborUp
from oncecast.overlay.hyparview import HyParView
from oncecast.simulator.simulated import Simulation

JOIN_EVERY = 0.5  # seconds between joins; the walks of a node end before the next node joins

Layers = Callable[[NodeId, Random], list[Protocol]]
World = TypeVar("World")
Result = TypeVar("Result")


class Overlay:
    """Nodes that join one by one through the first node.

    A cycle lasts as many seconds as there are nodes, so that all nodes can join within one cycle.
    Virtual time costs nothing.
    """

    def __init__(
        self,
        seed: int,
        nodes: int,
        say: Say,
        layers: Layers = lambda me, rng: [],
        hyparview: type[HyParView] = HyParView,
        **options: int | float,
    ) -> None:
        self.say = say
        self.names = [NodeId(f"n{index}") for index in range(nodes)]
        self.cycle = float(max(nodes, 10))
        self.changes = 0  # number of changes to active views
        self.events: Callable[[NodeId, Value], None] = lambda node, event: None
        self.sim = Simulation(seed, listener=self._hear)
        self.options = {"shuffle_every": self.cycle, "trade_chance": 0.0, **options}
        self.layers, self.hyparview = layers, hyparview
        self._grow()

    def _grow(self) -> None:
        for index, name in enumerate(self.names):
            if index % 2500 == 0:
                self.say(f"{index:,} of {len(self.names):,} nodes have joined")
            self.sim.add(name, self._build)
            self.sim.run(self.sim.now + JOIN_EVERY)

    def _build(self, me: NodeId, rng: Random) -> Stack:
        view = self.hyparview(me, rng, contacts=self.names[:1], **self.options)  # type: ignore[arg-type]
        return Stack([view, *self.layers(me, rng)])

    def _hear(self, node: NodeId, event: Value) -> None:
        if isinstance(event, NeighborUp | NeighborDown):
            self.changes += 1
        else:
            self.events(node, event)

    def run(self, cycles: float) -> None:
        self.sim.run(self.sim.now + cycles * self.cycle)

    def stabilize(self, cycles: int) -> None:
        for done in range(cycles):
            if done % 10 == 0:
                self.say(f"{done} of {cycles} cycles")
            self.run(1)

    def fail(self, count: int, *, spare_contact: bool = False) -> None:
        """Crash `count` nodes at once, including the contact unless `spare_contact` is set."""
        contact, *others = self.alive()
        if spare_contact:
            victims = self.sim.rng.sample(others, count)
        else:
            victims = [contact, *self.sim.rng.sample(others, count - 1)]
        self.crash(victims)

    def crash(self, victims: list[NodeId]) -> None:
        # The simulator scans the upcoming events once for each node that leaves the fast path. With
        # `observed` set, all victims leave the fast path together.
        self.sim.observed = True
        self.sim.look(*(self.sim.nodes[name] for name in victims))
        self.sim.observed = False
        for name in victims:
            self.sim.crash(name)

    def alive(self) -> list[NodeId]:
        return self.sim.alive()

    def view(self, node: NodeId) -> HyParView:
        return self.sim.protocol(node, HyParView)

    def links(self) -> list[list[int]]:
        """Return the indexes of each live node's neighbours, for symmetric links only."""
        alive = self.alive()
        number = {name: index for index, name in enumerate(alive)}
        return [
            [
                number[peer]
                for peer in self.view(name).active
                if peer in number and name in self.view(peer).active
            ]
            for name in alive
        ]


def apart(world: World, measure: Callable[[World, float], Result], figure: float) -> Result:
    """Run `measure` on a copy of `world` in a forked process, where the copy is free."""
    with warnings.catch_warnings():
        # pytest raises it for a fork in a process with threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        with ProcessPoolExecutor(
            1, get_context("fork"), initializer=_inherit, initargs=(world,)
        ) as pool:
            return pool.submit(_measure, measure, figure).result()


_inherited: list[Any] = []  # the copy of the world in a forked process


def _inherit(world: Any) -> None:
    _inherited.append(world)


def _measure(measure: Callable[[Any, float], Result], figure: float) -> Result:
    return measure(_inherited[0], figure)
