"""Group and leader through a storm: in the end all have the same view, and the same leader.

After the storm some crash for good. Whoever is left must then be in every view, the lowest of them
lead everywhere, and nothing change any more.
"""

from __future__ import annotations

from functools import partial
from random import Random

from oncecast.kernel.protocol import Emit, NodeId
from oncecast.kernel.stack import Stack
from oncecast.runtime.checkers import Checker, Violation
from oncecast.runtime.simulated import Build, Simulation
from oncecast.runtime.trace import Step
from oncecast.scenarios.scenario import Figures, Scenario
from oncecast.scenarios.toolkit_storm import SteadyStorm
from oncecast.toolkit.election import LeaderElection
from oncecast.toolkit.events import LeaderElected, ViewChanged
from oncecast.toolkit.group import Group

STORM_SECONDS = 6.0
CALM_SECONDS = 8.0
SETTLED_SECONDS = 3.0  # at the end, in which nothing may change


def members(names: list[NodeId]) -> Build:
    """Each knows the one before it, and hears of all others from there."""

    def build(me: NodeId, rng: Random) -> Stack:
        contact = names[names.index(me) - 1]
        group = Group(me, rng, peers=[contact], heartbeat=0.25, suspect_after=0.75)
        return Stack([group, LeaderElection(me, rng)])

    return build


class Agreement(Checker):
    def __init__(self) -> None:
        self.changes = 0
        self.calm = False

    def after(self, sim: Simulation, step: Step) -> None:
        for effect in step.effects:
            if isinstance(effect, Emit) and isinstance(effect.event, ViewChanged | LeaderElected):
                self.changes += 1
                if self.calm:
                    raise Violation(f"{step.node} changes its mind in the calm: {effect.event}")

    def finish(self, sim: Simulation) -> None:
        alive = sorted(sim.alive())
        for node in alive:
            stack = sim.nodes[node].stack
            assert stack is not None
            group, election = stack.protocols
            assert isinstance(group, Group)
            assert isinstance(election, LeaderElection)
            if list(group.view) != alive:
                raise Violation(f"{node} sees {group.view}, and there are {alive}")
            if election.leader != alive[0]:
                raise Violation(f"{node} follows {election.leader!r}, not {alive[0]}")


def play(sim: Simulation, nodes: int) -> Figures:
    names = [NodeId(f"n{index}") for index in range(nodes)]
    checker = Agreement()
    sim.check(checker)
    order = sim.rng.sample(names, len(names))
    for name in order:
        sim.call(sim.rng.uniform(0.0, 1.0), partial(arrive, sim, names, name))
    sim.run(until=1.0)
    storm = SteadyStorm(sim, names, away_max=(nodes - 1) // 2, drift=0.25)
    storm.begin()
    sim.run(until=STORM_SECONDS)
    storm.calm()
    sim.run(until=STORM_SECONDS + 1.0)
    for name in sim.rng.sample(names, (nodes - 1) // 2):
        sim.crash(name)
    sim.run(until=STORM_SECONDS + CALM_SECONDS)
    checker.calm = True
    sim.run(until=STORM_SECONDS + CALM_SECONDS + SETTLED_SECONDS)
    return {"changes": checker.changes, "strikes": storm.strikes}


def arrive(sim: Simulation, names: list[NodeId], name: NodeId) -> None:
    sim.add(name, members(names))


ELECTION = Scenario("election", "a group and its leader in a storm", 5, play)
