"""Replica groups: all replicas apply the same values in the same order (EXP-6).

storm      the storm of `oncecast sim run paxos` with the same seeds, written as rows
election   the leader crashes permanently, without other faults; a spare node replaces it
"""

from __future__ import annotations

import google_crc32c

from oncecast.kernel.protocol import Emit, NodeId, Value
from oncecast.lab.experiments.runs import Note, Run, Scale
from oncecast.lab.scenarios import paxos
from oncecast.lab.scenarios.paxos_checks import replica
from oncecast.lab.scenarios.paxos_ledger import Acked, Ledgers
from oncecast.replication.events import Added, Decided, Installed, LeaderChanged, Removed
from oncecast.simulator.checkers import Checker
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.step import Step

STORM, ELECTION = "storm", "election"
STORM_SIZES = {3: 20, 5: 10}  # number of seeds for each number of replicas
ELECTION_SIZES = {3: 15, 5: 15, 7: 15}
CRASH_AT, ELECTION_SECONDS = 5.0, 12.0
STORM_SECONDS = paxos.FIXED.seconds
VERBS = ("crash", "halt", "pause", "resume", "partition", "hold", "slow", "skew", "wipe", "flip")


def runs(scale: Scale) -> list[Run]:
    scenarios = ((STORM, STORM_SIZES), (ELECTION, ELECTION_SIZES))
    return [
        Run(scenario, "paxos", nodes, seed=seed)
        for scenario, sizes in scenarios
        for nodes, count in sizes.items()
        if nodes <= scale.nodes_max
        for seed in scale.seeds(count)
    ]


class Scribbler(Checker):
    """Writes these rows:

    - `decided`: the checksum of a value, and its slot
    - `installed`: a slot
    - `acked`: a put
    - `leader`: the leader that a node follows
    - `added` and `removed`: a member, and the version of the membership
    - `up`, and `fault` with the kind of the fault
    """

    def __init__(self, note: Note) -> None:
        self.note = note

    def after(self, sim: Simulation, step: Step) -> None:
        if step.kind == "start":
            self.note(sim.now, "up", step.node, "", 0.0)
        elif step.kind in VERBS:
            self.note(sim.now, "fault", step.node, step.kind, 0.0)
        for effect in step.effects:
            if isinstance(effect, Emit):
                self._note_event(sim, step.node, effect.event)

    def _note_event(self, sim: Simulation, node: NodeId, event: Value) -> None:
        now = sim.now
        match event:
            case Decided(slot, value, _):
                self.note(now, "decided", node, f"{google_crc32c.value(value):08x}", slot)
            case Installed(slot, _):
                self.note(now, "installed", node, "", slot)
            case LeaderChanged(leader):
                self.note(now, "leader", node, leader, 0.0)
            case Added(member):
                self.note(now, "added", node, member, version(sim, node))
            case Removed(member):
                self.note(now, "removed", node, member, version(sim, node))
            case _:
                pass

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        if isinstance(event, Acked):
            name = f"{event.producer}.{event.sequence}"
            self.note(sim.now, "acked", node, name, event.slot)


def version(sim: Simulation, node: NodeId) -> int:
    paxos = replica(sim, node)
    return paxos.config.version if paxos is not None else 0


def storm(run: Run, note: Note) -> None:
    """Play a storm, and write a row `held` if all rules hold. A violation ends the run."""
    sim = Simulation(run.seed)
    sim.check(Scribbler(note))
    paxos.play_drawn(sim, run.nodes, paxos.FIXED)
    sim.finish()
    note(sim.now, "held", "", "", 0.0)


def election(run: Run, note: Note) -> None:
    """Crash the leader, and write the same rows as for a storm."""
    sim, top = Simulation(run.seed), Ledgers()
    sim.check(Scribbler(note))
    campaign = paxos.Campaign(sim, run.nodes, top)
    weather = campaign.begin()
    top.begin(sim, weather.leaders, ELECTION_SECONDS)
    sim.run(until=CRASH_AT)
    sim.crash(weather.leaders()[0])
    sim.run(until=ELECTION_SECONDS + paxos.CALM_SECONDS)
    campaign.due = campaign.history.last
    sim.run(until=sim.now + 1.0)
    sim.finish()
    note(sim.now, "held", "", "", 0.0)
