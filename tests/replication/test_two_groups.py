"""REP-1: a first node that has lost its disk and starts without --join creates another group.

The two groups know each other's addresses, and must never mix their logs.
"""

from __future__ import annotations

from random import Random

import pytest

from oncecast.errors import Diverged
from oncecast.kernel.protocol import NodeId
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.draw import FAST
from oncecast.lab.scenarios.paxos_ledger import Ledger, Put
from oncecast.replication.messages import Accept, Beat, Canvass, Prepare, Want, WantPiece
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Config, Member
from oncecast.simulator.simulated import Simulation
from tests.replication.quiet import paxos_of
from tests.replication.replicas import A, B, C, ballot, command, hear, sends, started

OURS = Config(1, (Member(A, 1), Member(B, 1), Member(C, 1)), 3, group=7)
FIRST, *LATER = [NodeId("n0"), NodeId("n1"), NodeId("n2")]


@pytest.mark.parametrize(
    "message",
    [
        Canvass(1, 8),
        Prepare(ballot(1), 1, 8),
        Accept(ballot(1), 1, (command(b"x"),), 0, 8),
        Want(1, 9, 8),
        WantPiece(1, 0, 8),
    ],
)
def test_requests_of_another_group_are_not_answered(
    message: Canvass | Prepare | Accept | Want | WantPiece,
) -> None:
    assert hear(started(B, OURS), A, message) == []


def test_replica_contacted_by_the_leader_of_another_group_stops() -> None:
    with pytest.raises(
        Diverged, match=r"a leads another group that has this node as a member; .* --join a"
    ):
        hear(started(B, OURS), A, Beat(ballot(1), 0, 1.0, 8))


def test_memberships_and_requests_name_the_group() -> None:
    assert OURS.removed(A).added(Member(A, 2)).group == 7
    group = started(B, OURS)
    group.state.following.heard = -9.0
    group.leader.on_silence()
    assert sends(group.drain()) == [(A, Canvass(1, 7)), (C, Canvass(1, 7))]


def test_newcomer_learns_from_one_group_only() -> None:
    group = Paxos(B, Random(0), contacts=(A, C))
    group.start()
    group.drain()
    hear(group, A, Beat(ballot(1), 4, 1.0, 7))
    group.catch_up.on_behind()
    assert (C, Want(1, 4, 7)) in sends(group.drain())
    assert hear(group, C, Accept(ballot(2, C), 1, (command(b"x"),), 0, 8)) == []


def test_founder_that_lost_its_disk_stops_and_the_group_keeps_its_log() -> None:
    sim = Simulation(3)

    def build(me: NodeId, rng: Random) -> Stack:
        paxos = Paxos(me, rng, options=FAST, contacts=() if me == FIRST else (FIRST,))
        ledger = Ledger(me, rng, paxos)
        paxos.attach(ledger)
        return Stack([paxos, ledger])

    def put(producer: int, count: int) -> None:
        for sequence in range(count):
            sim.ask(FIRST, Put(producer, sequence, b""))

    for node in (FIRST, *LATER):
        sim.add(node, build, durable=True)
    sim.run(until=3.0)
    put(producer=0, count=3)
    sim.run(until=3.5)
    disk = sim.nodes[FIRST].disk
    assert disk is not None
    sim.crash(FIRST)
    disk.wipe()
    sim.restart(FIRST)
    sim.run(until=sim.now + 0.05)
    put(producer=1, count=30)  # more than the first group has
    with pytest.raises(Diverged, match=f"replica {FIRST}: n. leads another group"):
        sim.run(until=8.0)
    sim.crash(FIRST)
    sim.run(until=12.0)
    for node in LATER:
        machine = paxos_of(sim, node).learner.machine
        assert isinstance(machine, Ledger)
        assert machine.next == {0: 3}
