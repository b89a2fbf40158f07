"""HyParView through a storm: views stay within bounds, and in the end are symmetric and whole.

    hyparview   the views alone
    gossip      durable broadcast over them: every message ends at every node, once

All nodes start at the same moment and join through three contacts, which the storm strikes too.
"""

from __future__ import annotations

from random import Random

from oncecast.kernel.protocol import Emit, NodeId, Protocol
from oncecast.kernel.stack import Stack
from oncecast.overlay.events import NeighborDown, NeighborUp
from oncecast.overlay.hyparview import HyParView
from oncecast.overlay.plumtree import Plumtree
from oncecast.overlay.recovery import Recovery
from oncecast.runtime.checkers import Checker, Violation
from oncecast.runtime.faults import Storm
from oncecast.runtime.simulated import Simulation
from oncecast.runtime.trace import Step
from oncecast.scenarios.broadcast import Once, publish
from oncecast.scenarios.hyparview_graph import part_sizes
from oncecast.scenarios.scenario import Figures, Scenario

STORM_SECONDS = 20.0
CALM_SECONDS = 40.0
MESSAGES = 40
CONTACTS = 3


def view_of(sim: Simulation, node: NodeId) -> HyParView:
    stack = sim.nodes[node].stack
    assert stack is not None, f"{node} is down"
    view = stack.protocols[0]
    assert isinstance(view, HyParView)
    return view


def check_bounds(view: HyParView) -> None:
    if (
        len(view.active) > view.active_max
        or len(view.passive) > view.passive_max
        or len(view.asked) > 2 * view.active_max
        or len(view.lost) > view.active_max
        or len(view.tried) > view.passive_max
    ):
        raise Violation(f"{view.me} has too many: {view.active} {view.passive} {view.asked}")
    if view.me in view.active or view.me in view.passive:
        raise Violation(f"{view.me} is in its own view")
    if any(peer in view.active for peer in view.passive):
        raise Violation(f"{view.me} has one peer in both views")
    if view.watched.keys() != view.active.keys() | view.asked.keys():
        raise Violation(f"{view.me} watches {list(view.watched)}, has {list(view.active)}")


class Views(Checker):
    """Bounded always, told truly, and after the storm symmetric and in one part."""

    def __init__(self) -> None:
        self.told: dict[NodeId, dict[NodeId, None]] = {}  # neighbours, as the layers above hear

    def after(self, sim: Simulation, step: Step) -> None:
        if step.node not in sim.nodes or sim.nodes[step.node].stack is None:
            return  # a verb of the simulator, about many nodes or one that is gone
        if step.kind == "start":
            self.told[step.node] = {}
        view, told = view_of(sim, step.node), self.told[step.node]
        for effect in step.effects:
            if isinstance(effect, Emit):
                self._hear(step.node, told, effect)
        if list(view.active) != list(told):
            raise Violation(f"{step.node} has {list(view.active)} and said {list(told)}")
        check_bounds(view)

    def _hear(self, node: NodeId, told: dict[NodeId, None], effect: Emit) -> None:
        match effect.event:
            case NeighborUp(peer):
                if peer in told:
                    raise Violation(f"{node} said twice that {peer} is up")
                told[peer] = None
            case NeighborDown(peer):
                if peer not in told:
                    raise Violation(f"{node} said that {peer} is down, and it was not up")
                del told[peer]
            case _:
                pass

    def finish(self, sim: Simulation) -> None:
        number = {node: index for index, node in enumerate(sim.nodes)}
        links = [[number[peer] for peer in view_of(sim, node).active] for node in sim.nodes]
        for node in sim.nodes:
            for peer in view_of(sim, node).active:
                if node not in view_of(sim, peer).active:
                    raise Violation(f"{node} has {peer} as a neighbour, which does not have it")
        parts = part_sizes(links)
        if min(parts) < len(sim.nodes):
            raise Violation(f"the overlay has fallen apart; a part has {min(parts)} nodes")


def populate(sim: Simulation, nodes: int, *, gossiping: bool) -> list[NodeId]:
    names = [NodeId(f"n{index}") for index in range(nodes)]

    def build(me: NodeId, rng: Random) -> Stack:
        view = HyParView(me, rng, contacts=names[:CONTACTS], passive_max=10, shuffle_every=1.0)
        layers: list[Protocol] = [view]
        if gossiping:
            layers += [Plumtree(me, rng), Recovery(me, rng, snapshot_every=40)]
        return Stack(layers)

    for name in names:
        sim.add(name, build, durable=gossiping)
    return names


def play_views(sim: Simulation, nodes: int) -> Figures:
    sim.check(Views())
    names = populate(sim, nodes, gossiping=False)
    return weather_a_storm(sim, names)


def play_gossip(sim: Simulation, nodes: int) -> Figures:
    once = Once()
    sim.check(Views(), once)
    names = populate(sim, nodes, gossiping=True)
    for _ in range(MESSAGES):
        sim.call(sim.rng.uniform(0.0, STORM_SECONDS), lambda: publish(sim, once, names))
    return {"messages": MESSAGES, **weather_a_storm(sim, names)}


def weather_a_storm(sim: Simulation, names: list[NodeId]) -> Figures:
    storm = Storm(sim, names, away_max=max(1, (len(names) - 1) // 2), every=0.5)
    storm.begin()
    sim.run(until=STORM_SECONDS)
    storm.calm()
    sim.run(until=STORM_SECONDS + CALM_SECONDS)
    return {"strikes": storm.strikes}


HYPARVIEW = Scenario(
    "hyparview", "partial views that stay connected through a storm", 20, play_views
)
GOSSIP = Scenario(
    "gossip", "durable broadcast over partial views, through a storm", 12, play_gossip
)
