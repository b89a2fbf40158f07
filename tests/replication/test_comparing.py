"""REP-4: replicas compare their states, and one that differs from a majority stops."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.errors import Diverged
from oncecast.kernel.protocol import NodeId
from oncecast.replication.events import Digest
from oncecast.replication.messages import Sum
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Config, Member
from tests.replication.quiet import NODES, Quiet
from tests.replication.replicas import THREE, A, B, C, hear, sends, started

TWO = Config(1, (Member(A, 1), Member(B, 1)), 2)


def comparing(config: Config = THREE) -> Paxos:
    """Return a replica whose digest at slot 5 is "mine"."""
    group = started(A, config)
    group.state.progress.checks.append((5, 0))
    group.request(Digest(5, b"mine"))
    assert sends(group.drain()) == [
        (each, Sum(5, 0, b"mine")) for each in group.state.membership.others()
    ]
    return group


def test_replica_that_agrees_with_one_of_two_peers_continues() -> None:
    group = comparing()
    hear(group, B, Sum(5, 0, b"mine"))
    hear(group, C, Sum(5, 0, b"other"))


def test_replica_that_differs_from_one_peer_waits_for_the_other_peer() -> None:
    hear(comparing(), B, Sum(5, 0, b"other"))


@pytest.mark.parametrize("third", [b"other", b"another"])
def test_replica_that_differs_from_both_peers_stops(third: bytes) -> None:
    group = comparing()
    hear(group, B, Sum(5, 0, b"other"))
    with pytest.raises(Diverged, match="slot 5 differs from that of 2 of 3 replicas; move"):
        hear(group, C, Sum(5, 0, third))


def test_replica_in_a_group_of_two_stops_if_its_peer_differs() -> None:
    with pytest.raises(Diverged, match="1 of 2 replicas"):
        hear(comparing(TWO), B, Sum(5, 0, b"other"))


def test_sum_messages_from_non_members_are_ignored() -> None:
    group = comparing()
    for stranger in ("x", "y", "z"):
        hear(group, NodeId(stranger), Sum(5, 0, b"other"))


def test_replica_without_a_membership_ignores_sum_messages() -> None:
    group = Paxos(A, Random(0), contacts=(B,))
    group.start()
    group.request(Digest(5, b"mine"))
    hear(group, B, Sum(5, 0, b"other"))


def test_replica_with_a_corrupt_state_is_detected() -> None:
    quiet = Quiet()
    quiet.put(b"one", b"two")
    odd = next(node for node in NODES if node != quiet.leader)
    quiet.ledger(odd).fold ^= 1
    with pytest.raises(Diverged, match=f"replica {odd}: its state at slot .* of 3 replicas"):
        quiet.run(3.0)
