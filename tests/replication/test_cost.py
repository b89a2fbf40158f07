"""REP-1: a commit sends and writes no more than the protocol needs."""

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
from oncecast.simulator.step import Step
from oncecast.storage.disk import Buffer
from tests.replication.quiet import NODES, Quiet

# Turns off comparisons and early resends, which would add messages.
STEADY = replace(FAST, compare_every=0.0, resend=1.0)


def is_pulse(message: Value) -> bool:
    """Return whether this message is a heartbeat or the answer to one."""
    return isinstance(message, Beat | Heard)


class MessageCounter(Checker):
    """Counts the messages between replicas, without heartbeats."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def after(self, sim: Simulation, step: Step) -> None:
        for effect in step.effects:
            if isinstance(effect, Send) and effect.to != step.node and not is_pulse(effect.message):
                self.counts[type(effect.message).__name__] += 1


def test_commit_among_three_replicas_takes_two_accept_and_six_accepted_messages() -> None:
    quiet = Quiet(options=STEADY)
    quiet.put(b"warm-up")
    sent = MessageCounter()
    quiet.sim.check(sent)
    quiet.put(b"x")
    assert sent.counts == {"Accept": 2, "Accepted": 6}
    quiet.put(b"y", b"z")
    assert sent.counts == {"Accept": 6, "Accepted": 18}


def test_put_is_written_once_on_each_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each disk gets the payload once, plus less than 500 bytes."""
    quiet = Quiet(options=STEADY)
    quiet.put(b"warm-up")
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


def test_put_is_not_rewritten_when_a_new_leader_proposes_it_again() -> None:
    quiet = Quiet()
    payload = b"a payload that is nowhere else " * 100
    leader = quiet.leader
    followers = [node for node in NODES if node != leader]
    # Answers are lost: all replicas have accepted the value, and none knows that it is chosen.
    cuts = [quiet.sim.partition([node], one_way=True) for node in followers]
    quiet.sim.ask(leader, Put(0, 0, payload))
    quiet.run(0.2)
    quiet.sim.crash(leader)
    for fronts in cuts:
        quiet.sim.repair(fronts)
    quiet.run(5.0)
    assert quiet.leader != leader
    assert quiet.ledger(quiet.leader).next == {0: 1}
    quiet.sim.restart(leader)
    quiet.run(3.0)
    for node in NODES:
        assert quiet.ledger(node).next == {0: 1}
        assert quiet.files(node).count(payload) == 1
