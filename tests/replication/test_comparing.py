"""REP-4: replicas compare what they have come to; who is not with a majority stops, and says so."""

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
from tests.replication.replicas import THREE, A, B, C, awake, hear, sends

TWO = Config(1, (Member(A, 1), Member(B, 1)), 2)


def comparing(config: Config = THREE) -> Paxos:
    """A replica that has come to "mine" at slot 5."""
    group = awake(A, config)
    group.state.progress.checks.append((5, 0))
    group.request(Digest(5, b"mine"))
    assert sends(group.drain()) == [
        (each, Sum(5, 0, b"mine")) for each in group.state.membership.others()
    ]
    return group


def test_who_has_the_same_as_one_other_of_three_goes_on() -> None:
    group = comparing()
    hear(group, B, Sum(5, 0, b"mine"))
    hear(group, C, Sum(5, 0, b"other"))


def test_who_differs_from_one_waits_for_what_the_third_says() -> None:
    hear(comparing(), B, Sum(5, 0, b"other"))


@pytest.mark.parametrize("third", [b"other", b"another"])
def test_who_differs_from_two_of_three_stops_also_if_these_differ_too(third: bytes) -> None:
    group = comparing()
    hear(group, B, Sum(5, 0, b"other"))
    with pytest.raises(Diverged, match="slot 5 differs from that of 2 of 3 replicas; move"):
        hear(group, C, Sum(5, 0, third))


def test_of_two_that_differ_neither_goes_on() -> None:
    with pytest.raises(Diverged, match="1 of 2 replicas"):
        hear(comparing(TWO), B, Sum(5, 0, b"other"))


def test_who_has_no_seat_has_no_say() -> None:
    group = comparing()
    for stranger in ("x", "y", "z"):
        hear(group, NodeId(stranger), Sum(5, 0, b"other"))


def test_who_does_not_know_of_any_member_has_nobody_to_differ_from() -> None:
    group = Paxos(A, Random(0), contacts=(B,))
    group.start()
    group.request(Digest(5, b"mine"))
    hear(group, B, Sum(5, 0, b"other"))


def test_a_replica_whose_state_is_not_what_its_log_led_to_is_found_out() -> None:
    quiet = Quiet()
    quiet.put(b"one", b"two")
    odd = next(node for node in NODES if node != quiet.leader)
    quiet.ledger(odd).fold ^= 1
    with pytest.raises(Diverged, match=f"replica {odd}: its state at slot .* of 3 replicas"):
        quiet.run(3.0)
