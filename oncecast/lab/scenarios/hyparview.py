"""HyParView under faults: views stay bounded, and become symmetric and connected.

    hyparview   the views alone
    gossip      durable broadcast over them: each node delivers each message once

All nodes start at once and join through three contacts, which may fail too. The seed draws the
conditions of `gossip`.
"""

from __future__ import annotations

from random import Random

from oncecast.kernel.protocol import Emit, NodeId
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.broadcast import Layers, Once, weather_a_storm
from oncecast.lab.scenarios.conditions import Conditions
from oncecast.lab.scenarios.hyparview_graph import part_sizes
from oncecast.lab.scenarios.scenario import Figures, Scenario
from oncecast.overlay.events import NeighborDown, NeighborUp
from oncecast.overlay.hyparview import HyParView
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.faults import Storm
from oncecast.simulator.simulated import Build, Simulation
from oncecast.simulator.step import Step

STORM_SECONDS = 20.0
CALM_SECONDS = 40.0
TRADE_SECONDS = 2.0  # extra seconds for a trade of neighbours that is in progress at the end
GOSSIP_SECONDS = 12.0  # mean duration of a storm
CONTACTS = 3


def check_bounds(view: HyParView) -> None:
    if (
        len(view.active) > view.active_max
        or len(view.passive) > view.passive_max
        or len(view.asked) > 2 * view.active_max
        or len(view.lost) > view.active_max
        or len(view.tried) > view.passive_max
    ):
        raise Violation(
            f"{view.me} exceeds a limit: active {view.active}, passive {view.passive}, "
            f"asked {view.asked}"
        )
    if view.me in view.active or view.me in view.passive:
        raise Violation(f"{view.me} is in its own view")
    if any(peer in view.active for peer in view.passive):
        raise Violation(f"{view.me} has a peer in both its active and its passive view")
    if view.watched.keys() != view.active.keys() | view.asked.keys():
        raise Violation(
            f"{view.me} watches {list(view.watched)}, but its view is {list(view.active)}"
        )


class Views(Checker):
    """Checks that views stay bounded, match the events, and become symmetric and connected."""

    def __init__(self) -> None:
        # The neighbours that each node has announced.
        self.announced: dict[NodeId, dict[NodeId, None]] = {}

    def after(self, sim: Simulation, step: Step) -> None:
        if step.node not in sim.nodes or sim.nodes[step.node].stack is None:
            return  # the fault hit several nodes, or a node that was already down
        if step.kind == "start":
            self.announced[step.node] = {}
        view, announced = sim.protocol(step.node, HyParView), self.announced[step.node]
        for effect in step.effects:
            if isinstance(effect, Emit):
                self._note(step.node, announced, effect)
        if list(view.active) != list(announced):
            raise Violation(
                f"{step.node} announced {list(announced)}, but its view is {list(view.active)}"
            )
        check_bounds(view)

    def _note(self, node: NodeId, announced: dict[NodeId, None], effect: Emit) -> None:
        match effect.event:
            case NeighborUp(peer):
                if peer in announced:
                    raise Violation(f"{node} announced twice that {peer} is up")
                announced[peer] = None
            case NeighborDown(peer):
                if peer not in announced:
                    raise Violation(f"{node} announced that {peer} is down, but it was not up")
                del announced[peer]
            case _:
                pass

    def finish(self, sim: Simulation) -> None:
        if left := self.left(sim):
            raise Violation(left)

    def left(self, sim: Simulation) -> str:
        """Return why the views are not symmetric and connected yet, or an empty string."""
        number = {node: index for index, node in enumerate(sim.nodes)}
        active = {node: sim.protocol(node, HyParView).active for node in sim.nodes}
        links = [[number[peer] for peer in peers] for peers in active.values()]
        for node, peers in active.items():
            for peer in peers:
                if node not in active[peer]:
                    return (
                        f"{peer} is a neighbour of {node}, but {node} is not a neighbour of {peer}"
                    )
        parts = part_sizes(links)
        if min(parts) < len(sim.nodes):
            return f"the overlay is not connected: one part has only {min(parts)} nodes"
        return ""


def viewers(names: list[NodeId]) -> Build:
    def build(me: NodeId, rng: Random) -> Stack:
        return Stack(
            [HyParView(me, rng, contacts=names[:CONTACTS], passive_max=10, shuffle_every=1.0)]
        )

    return build


def gossipers(conditions: Conditions, layers: Layers) -> Build:
    names = conditions.names
    active_max = conditions.rng.choice((3, 4, 5))
    shuffles = {name: conditions.time(0.5, 3.0) for name in names}
    answers = {name: conditions.time(1.5, 3.0) for name in names}

    def build(me: NodeId, rng: Random) -> Stack:
        view = HyParView(
            me,
            rng,
            contacts=names[:CONTACTS],
            active_max=active_max,
            passive_max=10,
            shuffle_every=shuffles[me],
            answer_within=answers[me],
        )
        return Stack([view, *layers(me, rng)])

    return build


def play_views(sim: Simulation, nodes: int) -> Figures:
    views = Views()
    sim.check(views)
    names = [NodeId(f"n{index}") for index in range(nodes)]
    for name in names:
        sim.add(name, viewers(names))
    storm = Storm(sim, names, away_max=max(1, (nodes - 1) // 2), every=0.5)
    storm.begin()
    sim.run(until=STORM_SECONDS)
    storm.calm()
    sim.run(until=STORM_SECONDS + CALM_SECONDS)
    while views.left(sim) and sim.now < STORM_SECONDS + CALM_SECONDS + TRADE_SECONDS:
        sim.run(until=sim.now + 0.05)
    return {"strikes": storm.strikes}


def play_gossip(sim: Simulation, nodes: int) -> Figures:
    conditions = Conditions(sim, GOSSIP.nodes_min, nodes, GOSSIP_SECONDS)
    once, views, layers = Once(), Views(), Layers(conditions)
    sim.check(views, once)
    build = gossipers(conditions, layers)
    for name in conditions.names:
        sim.add(name, build, durable=name in layers.durable)

    def done() -> bool:
        return not once.left(sim) and not views.left(sim)

    strikes = weather_a_storm(conditions, once, done)
    return {"messages": len(once.published), "strikes": strikes}


HYPARVIEW = Scenario(
    "hyparview", "partial views that stay connected in a storm of faults", 20, play_views
)
GOSSIP = Scenario(
    "gossip",
    "durable broadcast over partial views that survives a storm of faults",
    12,
    play_gossip,
)
