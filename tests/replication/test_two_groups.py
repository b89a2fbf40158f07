"""REP-1: if the first node loses its disk and restarts without --join, it creates another group.

The two groups know each other's addresses, and must never mix their logs.
"""

from __future__ import annotations

from random import Random

import pytest

from oncecast.errors import Diverged
from oncecast.kernel.protocol import NodeId, Send
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.draw import FAST
from oncecast.lab.scenarios.paxos_ledger import Ledger, Put
from oncecast.replication.messages import (
    Accept,
    Attest,
    Beat,
    Canvass,
    Guide,
    Prepare,
    Want,
    WantPiece,
)
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import NO_MEMBERS, Config, Member
from oncecast.simulator.simulated import Simulation
from tests.replication.quiet import paxos_of
from tests.replication.replicas import A, B, C, D, ballot, command, hear, leading, sends, started

ALONE = Config(1, (Member(B, 1),), 3, group=1)
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
def test_requests_from_another_group_are_not_answered(
    message: Canvass | Prepare | Accept | Want | WantPiece,
) -> None:
    assert hear(started(B, OURS), A, message) == []


def shown(*nodes: NodeId) -> Guide:
    """Return the Guide that replicas of another group send to a non-member."""
    return Guide(A, Config(4, tuple(Member(node, 0) for node in nodes), 3))


def claimed() -> Paxos:
    """Return a founder, alone in its group, which A claims as a member of another group."""
    group = started(B, ALONE)
    assert hear(group, A, Beat(ballot(1), 0, 1.0, 8)) == [Send(A, Attest(B), after=0)]
    return group


def test_founder_stops_if_a_majority_of_another_group_names_it_as_a_member() -> None:
    group = claimed()
    group.receive(A, shown(A, B, C))
    with pytest.raises(
        Diverged, match=r"a leads another group that includes this node; .* --join a"
    ):
        group.receive(C, shown(A, B, C))


def test_single_node_cannot_stop_a_replica() -> None:
    """SEC-1"""
    group = claimed()
    for guide in (shown(A, B, C), shown(A, B), shown(B), shown(A), Guide(A, NO_MEMBERS)):
        assert hear(group, A, guide) == []
    assert hear(group, A, Beat(ballot(1), 0, 1.0, 8)) == []  # the answers may be in flight
    group.now += group.options.suspicion
    group.receive(A, shown(A, B, C))
    group.receive(C, shown(A, B, C))  # the answer is too late
    assert hear(group, A, Beat(ballot(1), 0, 1.0, 8)) == [Send(A, Attest(B), after=0)]


def test_witness_outside_the_other_group_does_not_count() -> None:
    """SEC-1"""
    group = claimed()
    group.receive(A, shown(A, B, C))
    group.receive(D, shown(A, B, C))
    group.receive(D, shown(A, B, D))
    group.receive(C, shown(A, C))


def test_own_group_members_cannot_prove_another_group() -> None:
    """SEC-1: otherwise one forged message would make the member's own group attest."""
    ours = Config(2, (Member(A, 9), Member(B, 1), Member(C, 9)), 3, group=1)
    group = started(B, ours)
    assert hear(group, A, Beat(ballot(1), 0, 1.0, 8)) == []
    assert hear(group, D, Beat(ballot(1, D), 0, 1.0, 8)) == [Send(D, Attest(B), after=0)]
    group.receive(D, shown(A, B, C, D))
    for node in (A, C):
        group.receive(node, shown(A, B, C, D))


def test_replica_that_did_not_found_its_group_ignores_other_groups() -> None:
    """SEC-1"""
    assert hear(started(B, OURS), A, Beat(ballot(1), 0, 1.0, 8)) == []
    assert hear(started(B, OURS), D, Beat(ballot(1, D), 0, 1.0, 8)) == []


def test_leader_forwards_an_attest_message_to_its_followers() -> None:
    group = leading(A, OURS)
    attest, guide = Attest(B), Guide(A, OURS.without_secrets())
    assert hear(group, B, attest) == [Send(B, guide, after=0), Send(C, attest, after=0)]
    follower = started(C, OURS)
    assert sends(hear(follower, A, attest)) == [(B, Guide(NodeId(""), guide.config))]
    assert hear(follower, A, Attest(D)) == []  # D is not a member
    assert hear(follower, D, Attest(D)) == []
    assert hear(follower, A, Attest(C)) == []


def test_memberships_and_requests_carry_the_group_number() -> None:
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
    put(producer=1, count=30)  # more slots than the first group has
    with pytest.raises(Diverged, match=f"replica {FIRST}: n. leads another group"):
        sim.run(until=8.0)
    sim.crash(FIRST)
    sim.run(until=12.0)
    for node in LATER:
        machine = paxos_of(sim, node).learner.machine
        assert isinstance(machine, Ledger)
        assert machine.next == {0: 3}
