"""What a commit costs: no message and no byte more than the protocol needs (REP-1)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from oncecast.kernel.protocol import Send, Value
from oncecast.replication.messages import Beat, Heard
from oncecast.runtime.checkers import Checker
from oncecast.runtime.simulated import Simulation
from oncecast.runtime.trace import Step
from oncecast.scenarios.paxos import FAST
from oncecast.scenarios.paxos_ledger import Put
from tests.replication.quiet import NODES, Quiet


def is_pulse(message: Value) -> bool:
    """Whether it would have been said without any command."""
    return isinstance(message, Beat | Heard)


class Said(Checker):
    """Counts what replicas say to each other."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def after(self, sim: Simulation, step: Step) -> None:
        for effect in step.effects:
            if isinstance(effect, Send) and effect.to != step.node and not is_pulse(effect.message):
                self.counts[type(effect.message).__name__] += 1


def test_a_commit_of_three_takes_two_accepts_and_six_accepted() -> None:
    quiet = Quiet(options=replace(FAST, compare_every=0.0))
    quiet.put(b"so that all is steady")
    said = Said()
    quiet.sim.check(said)
    quiet.put(b"x")
    assert said.counts == {"Accept": 2, "Accepted": 6}
    quiet.put(b"y", b"z")
    assert said.counts == {"Accept": 6, "Accepted": 18}


def test_a_put_is_written_once_on_each_replica() -> None:
    """The accept is the store: a payload is in each log once, and in no snapshot."""
    quiet = Quiet()
    payload = b"a payload that is nowhere else " * 100
    quiet.put(b"first", payload, b"last")
    for node in NODES:
        assert quiet.files(node).count(payload) == 1


def test_a_put_that_a_new_leader_proposes_again_is_not_written_again() -> None:
    quiet = Quiet()
    payload = b"a payload that is nowhere else " * 100
    leader = quiet.leader
    others = [node for node in NODES if node != leader]
    # What the others say does not arrive: all have accepted, and nobody knows that it is chosen.
    deaf = [quiet.sim.partition([node], one_way=True) for node in others]
    quiet.sim.ask(leader, Put(0, 0, payload))
    quiet.run(0.2)
    quiet.sim.crash(leader)
    for fronts in deaf:
        quiet.sim.repair(fronts)
    quiet.run(5.0)
    assert quiet.leader != leader
    assert quiet.ledger(quiet.leader).next == {0: 1}
    quiet.sim.restart(leader)
    quiet.run(3.0)
    for node in NODES:
        assert quiet.ledger(node).next == {0: 1}
        assert quiet.files(node).count(payload) == 1
