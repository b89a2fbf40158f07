"""REP-5: a replica that returns from a restart or a partition does not disturb its group."""

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
from oncecast.simulator.step import Step
from tests.replication.quiet import NODES, Quiet


class Observer(Checker):
    """Records all leader changes, and the messages and records of one node."""

    def __init__(self, node: NodeId) -> None:
        self.node = node
        self.leaders: list[tuple[NodeId, NodeId]] = []
        self.sent: dict[str, None] = {}
        self.wrote: list[object] = []

    def after(self, sim: Simulation, step: Step) -> None:
        for effect in step.effects:
            if isinstance(effect, Emit) and isinstance(effect.event, LeaderChanged):
                self.leaders.append((step.node, effect.event.leader))
            elif step.node == self.node and isinstance(effect, Send) and effect.to != self.node:
                self.sent[type(effect.message).__name__] = None
            elif step.node == self.node and isinstance(effect, Append):
                self.wrote.append(effect.record)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("restarts", [True, False])
def test_isolated_follower_does_not_depose_the_leader_on_its_return(
    seed: int, restarts: bool
) -> None:
    """While isolated, it only canvasses and writes nothing."""
    quiet = Quiet(seed, replace(FAST, compare_every=0.0))
    leader = quiet.leader
    ballot = quiet.paxos(leader).state.votes.promised
    follower = next(node for node in NODES if node != leader)
    seen = Observer(follower)
    fronts = quiet.sim.isolate(follower)
    if restarts:
        quiet.restart(follower)
    quiet.run(0.2)  # messages in flight arrive
    quiet.sim.check(seen)
    quiet.run(3 * quiet.options.suspicion)
    assert list(seen.sent) == [Canvass.__name__]
    assert seen.wrote == []
    quiet.sim.repair(fronts)
    for sequence in range(10):  # no put waits for an election
        quiet.sim.ask(leader, Put(1, sequence, b"x"))
        quiet.run(0.2)
        assert quiet.ledger(leader).next[1] == sequence + 1
    assert [node for node, _ in seen.leaders if node != follower] == []
    assert seen.leaders[-1] == (follower, leader)
    assert [quiet.paxos(node).state.votes.promised for node in NODES] == [ballot] * 3
