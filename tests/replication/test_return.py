"""REP-5: who comes back from a restart, or from a lonely place, disturbs nobody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncecast.kernel.protocol import Append, Emit, NodeId, Send
from oncecast.lab.scenarios.draw import FAST
from oncecast.lab.scenarios.paxos_ledger import Put
from oncecast.replication.events import LeaderChanged
from oncecast.replication.messages import Canvass
from oncecast.simulator.checkers import Checker
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.trace import Step
from tests.replication.quiet import NODES, Quiet


class Heard(Checker):
    """Which leaders the others hear of, and what one node says and writes by itself."""

    def __init__(self, node: NodeId) -> None:
        self.node = node
        self.leaders: list[tuple[NodeId, NodeId]] = []
        self.said: dict[str, None] = {}
        self.wrote: list[object] = []

    def after(self, sim: Simulation, step: Step) -> None:
        for effect in step.effects:
            if isinstance(effect, Emit) and isinstance(effect.event, LeaderChanged):
                self.leaders.append((step.node, effect.event.leader))
            elif step.node == self.node and isinstance(effect, Send) and effect.to != self.node:
                self.said[type(effect.message).__name__] = None
            elif step.node == self.node and isinstance(effect, Append):
                self.wrote.append(effect.record)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("restarts", [True, False])
def test_a_backup_that_was_alone_for_long_ends_no_reign_when_it_is_back(
    seed: int, restarts: bool
) -> None:
    """While nobody hears it, it asks who leads, again and again; it writes and promises nothing."""
    quiet = Quiet(seed, replace(FAST, compare_every=0.0))
    leader = quiet.leader
    ballot = quiet.paxos(leader).state.votes.promised
    backup = next(node for node in NODES if node != leader)
    heard = Heard(backup)
    fronts = quiet.sim.isolate(backup)
    if restarts:
        quiet.restart(backup)
    quiet.run(0.2)  # what was under way arrives
    quiet.sim.check(heard)
    quiet.run(3 * quiet.options.suspicion)
    assert list(heard.said) == [Canvass.__name__]
    assert heard.wrote == []
    quiet.sim.repair(fronts)
    for sequence in range(10):  # and no put waits for anything
        quiet.sim.ask(leader, Put(1, sequence, b"x"))
        quiet.run(0.2)
        assert quiet.ledger(leader).next[1] == sequence + 1
    assert [node for node, _ in heard.leaders if node != backup] == []
    assert heard.leaders[-1] == (backup, leader)
    assert [quiet.paxos(node).state.votes.promised for node in NODES] == [ballot] * 3
