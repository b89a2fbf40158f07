"""What a commit costs: no message and no byte more than the protocol needs (REP-1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from oncecast.kernel.protocol import Send, Value
from oncecast.lab.scenarios.draw import FAST
from oncecast.lab.scenarios.paxos_ledger import Put
from oncecast.replication.messages import Beat, Heard
from oncecast.simulator.checkers import Checker
from oncecast.simulator.disk import SimulatedDisk, SimulatedFile
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.trace import Step
from oncecast.storage.disk import Buffer
from tests.replication.quiet import NODES, Quiet

# Nothing is compared, and an answer may take its time before anything is said again.
STEADY = replace(FAST, compare_every=0.0, resend=1.0)


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
    quiet = Quiet(options=STEADY)
    quiet.put(b"so that all is steady")
    said = Said()
    quiet.sim.check(said)
    quiet.put(b"x")
    assert said.counts == {"Accept": 2, "Accepted": 6}
    quiet.put(b"y", b"z")
    assert said.counts == {"Accept": 6, "Accepted": 18}


def test_a_put_is_written_once_on_each_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """The accept is the store: of a put, its payload is written and hardly anything else."""
    quiet = Quiet(options=STEADY)
    quiet.put(b"so that all is steady")
    written: Counter[SimulatedDisk] = Counter()
    write = SimulatedFile.write

    def counted(file: SimulatedFile, offset: int, parts: Sequence[Buffer]) -> None:
        written[file._disk] += sum(len(part) for part in parts)
        write(file, offset, parts)

    monkeypatch.setattr(SimulatedFile, "write", counted)
    payload = b"a payload that is nowhere else " * 1000
    quiet.put(payload)
    for node in NODES:
        disk = quiet.sim.nodes[node].disk
        assert disk is not None
        assert 0 < written[disk] - len(payload) < 500
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
