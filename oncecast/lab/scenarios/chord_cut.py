"""A ring in which one or two links are cut: no two members are certain that they own the same key.

All nodes can still reach each other through another node. Chord then does not promise one owner per
key; it only marks uncertain answers. Every lookup ends by the time the links are repaired.
"""

from __future__ import annotations

from random import Random

from oncecast.dht.chord import Chord
from oncecast.dht.events import FindRoot, RootFound
from oncecast.dht.identifiers import Key, key_of
from oncecast.dht.member import Ownership
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.chord import members_of, status_of
from oncecast.lab.scenarios.chord_steady import Steady
from oncecast.lab.scenarios.scenario import Figures, Scenario
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.step import Step

NODES_MIN = 4
STABILIZE = 0.3
CUT_SECONDS, CALM_SECONDS = 7.0, 6.0
KEYS = 12
LOOK_UP_EVERY = 1.0


class Certainty(Checker):
    """Checks that no two members are certain to own a key. Counts lookups and hints."""

    def __init__(self, keys: list[Key]) -> None:
        self.keys = keys
        self.asked = self.hints = 0
        self._waiting: dict[tuple[NodeId, Key], None] = {}
        self._lows: dict[NodeId, Key | None] = {}

    def look_up(self, sim: Simulation) -> None:
        for key in self.keys:
            node = sim.rng.choice(sim.alive())
            if (node, key) not in self._waiting:
                self._waiting[node, key] = None
                self.asked += 1
                sim.ask(node, FindRoot(key))

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        if isinstance(event, RootFound):
            self._waiting.pop((node, event.key), None)
            self.hints += not event.certain

    def after(self, sim: Simulation, step: Step) -> None:
        if step.node not in sim.nodes:
            return
        (member,) = status_of(sim, step.node).members
        if self._lows.get(step.node) == member.low:
            return
        self._lows[step.node] = member.low
        members = members_of(sim)
        for key in self.keys:
            certain = [each for each in members if each.owns(key) is Ownership.CERTAIN]
            owners = [member.position.node for member in certain]
            if len(owners) > 1:
                raise Violation(
                    f"{' and '.join(owners)} are all certain that they own key {key.hex()[:8]}"
                )

    def finish(self, sim: Simulation) -> None:
        if self._waiting:
            raise Violation(f"{len(self._waiting)} lookups were never answered")


def play(sim: Simulation, nodes: int) -> Figures:
    count = sim.rng.randint(NODES_MIN, nodes)
    links = sim.rng.random() < 0.7
    successors = sim.rng.choice((2, 4, 8))
    names = [NodeId(f"n{index}") for index in range(count)]
    steady = Steady.of(names)

    def build(me: NodeId, rng: Random) -> Stack:
        members = steady.members(me, successors)
        return Stack([Chord(me, rng, members=members, stabilize_every=STABILIZE, links=links)])

    for name in names:
        sim.add(name, build)
    certainty = Certainty([key_of(f"{sim.rng.random()}") for _ in range(KEYS)])
    sim.check(certainty)
    sim.run(until=STABILIZE)
    victim, *near = near_each_other(sim, steady)
    for other in sim.rng.sample(near, sim.rng.choice((1, 2))):
        sim.partition([victim], [other])
    look_up_until(sim, certainty, CUT_SECONDS)
    sim.repair()
    sim.run(until=CUT_SECONDS + CALM_SECONDS)
    return {"nodes": count, "lookups": certainty.asked, "hints": certainty.hints}


def near_each_other(sim: Simulation, steady: Steady) -> list[NodeId]:
    """Return a random node, its predecessor and its next two successors."""
    positions = steady.positions
    at = sim.rng.randrange(len(positions))
    return [positions[(at + step) % len(positions)].node for step in (0, -1, 1, 2)]


def look_up_until(sim: Simulation, certainty: Certainty, end: float) -> None:
    while sim.now < end:
        certainty.look_up(sim)
        sim.run(until=sim.now + LOOK_UP_EVERY)


CHORD_CUT = Scenario(
    "chord-cut", "a Chord ring in which some links are cut", 10, play, nodes_min=NODES_MIN
)
