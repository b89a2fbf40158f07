"""A group and its leader in a storm. At the end, all nodes have the same view and leader.

Every node has its own heartbeat, suspicion and clock. A message may take longer than a heartbeat.
After the storm some nodes crash permanently. Every view must then contain exactly the remaining
nodes, all nodes must follow the lowest of them, and nothing may change again.
"""

from __future__ import annotations

from functools import partial
from random import Random

from oncecast.coordination.protocols.election import LeaderElection
from oncecast.coordination.protocols.events import LeaderElected, ViewChanged
from oncecast.coordination.protocols.group import Group
from oncecast.kernel.protocol import Emit, NodeId
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.conditions import Conditions
from oncecast.lab.scenarios.coordination_storm import SteadyStorm
from oncecast.lab.scenarios.scenario import Figures, Scenario
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Build, Simulation
from oncecast.simulator.step import Step

ARRIVALS = 1.0  # maximum seconds until all nodes have started
STORM_SECONDS = 4.0  # mean duration of a storm
SETTLED_SECONDS = 3.0  # seconds without a change; no node stays silent for that long
PATIENCE = 60.0  # maximum seconds until the views settle
DELAY_MAX = 0.8  # maximum message delay after the storm; longer than the shortest heartbeat


def members(conditions: Conditions) -> Build:
    """Return a function that builds a node. At first, a node knows only the node before it."""
    names = conditions.names
    beats = {name: conditions.time(0.15, 0.6) for name in names}
    suspicions = {name: conditions.time(0.3, 2.0) for name in names}
    forget_after = conditions.time(10.0, 60.0)

    def build(me: NodeId, rng: Random) -> Stack:
        contact = names[names.index(me) - 1]
        group = Group(
            me,
            rng,
            peers=[contact],
            heartbeat=beats[me],
            suspect_after=suspicions[me],
            forget_after=forget_after,
        )
        return Stack([group, LeaderElection(me, rng)])

    return build


class Agreement(Checker):
    def __init__(self) -> None:
        self.changes = 0
        self.changed_at = 0.0

    def after(self, sim: Simulation, step: Step) -> None:
        for effect in step.effects:
            if isinstance(effect, Emit) and isinstance(effect.event, ViewChanged | LeaderElected):
                self.changes += 1
                self.changed_at = sim.now

    def settled(self, sim: Simulation) -> bool:
        return sim.now >= self.changed_at + SETTLED_SECONDS

    def finish(self, sim: Simulation) -> None:
        if not self.settled(sim):
            raise Violation(f"views or leaders are still changing {PATIENCE:g} s after the storm")
        alive = sorted(sim.alive())
        for node in alive:
            group, election = sim.protocol(node, Group), sim.protocol(node, LeaderElection)
            if list(group.view) != alive:
                raise Violation(
                    f"{node} has the view {group.view}, but the running nodes are {alive}"
                )
            if election.leader != alive[0]:
                raise Violation(f"{node} follows {election.leader!r}, expected {alive[0]!r}")


def play(sim: Simulation, nodes: int) -> Figures:
    conditions = Conditions(sim, ELECTION.nodes_min, nodes, STORM_SECONDS)
    names, build = conditions.names, members(conditions)
    checker = Agreement()
    sim.check(checker)
    for name in sim.rng.sample(names, len(names)):
        sim.call(sim.rng.uniform(0.0, ARRIVALS), partial(arrive, sim, name, build))
    sim.run(until=ARRIVALS)
    conditions.begin()
    storm = SteadyStorm(conditions, away_max=(len(names) - 1) // 2)
    storm.prominent = lambda: sorted(sim.alive())[:1]
    storm.begin()
    sim.run(until=ARRIVALS + conditions.storm_seconds)
    storm.calm()
    conditions.calm(DELAY_MAX)
    sim.run(until=sim.now + sim.rng.uniform(0.0, 1.0))
    for name in sim.rng.sample(names, (len(names) - 1) // 2):
        sim.crash(name)
    checker.changed_at = sim.now
    conditions.run_until(lambda: checker.settled(sim), PATIENCE)
    return {"changes": checker.changes, "strikes": storm.strikes}


def arrive(sim: Simulation, name: NodeId, build: Build) -> None:
    sim.add(name, build)


ELECTION = Scenario("election", "a group that elects its leader in a storm of faults", 6, play)
