"""REP-1: one flipped bit is noticed and made good from the others; what all have lost is named."""

from __future__ import annotations

import pytest

from oncecast.errors import Corrupt, Crippled
from oncecast.kernel.protocol import NodeId
from tests.replication.quiet import NODES, Quiet

N0, N1, N2 = NODES


def whole(quiet: Quiet) -> bool:
    """Every replica can read every entry that its state refers to, and all are equal."""
    kept = list(quiet.ledger(N0).kept)
    for node in NODES:
        for slot, _ in kept:
            quiet.paxos(node).entry(slot)
    return len({quiet.ledger(node).digest() for node in NODES}) == 1


@pytest.mark.parametrize("victim", NODES)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_flipped_bit_is_noticed_and_refilled(victim: NodeId, restarts: bool) -> None:
    """Also on the leader; when it is read, or when the replica restarts and looks through it."""
    quiet = Quiet()
    places = quiet.put(*(b"%d" % index for index in range(8)))
    quiet.flip(victim, places[3])
    assert quiet.paxos(victim).state.values.readable(places[3]) is None
    if restarts:
        quiet.restart(victim)
    quiet.run(5.0)
    assert whole(quiet)
    quiet.put(b"and on")
    assert whole(quiet)


@pytest.mark.parametrize("pause", [0.3, 0.004])
def test_different_records_damaged_on_each_of_three_leave_all_whole(pause: float) -> None:
    """Also if many were on their way, so that none of them says which others were chosen."""
    quiet = Quiet()
    places = quiet.put(*(b"%d" % index for index in range(19)), pause=pause)
    for node, slot in zip(NODES, places[8:14:2], strict=True):
        quiet.flip(node, slot)
    quiet.restart(*NODES)
    quiet.run(8.0)
    assert whole(quiet)
    assert [quiet.paxos(node).state.membership.incarnation for node in NODES] == [1, 1, 1]
    quiet.put(b"and on")
    assert whole(quiet)


def test_an_entry_that_all_have_lost_is_named_and_the_rest_is_served() -> None:
    """The state stands without it; who reads it is told which file, byte and record."""
    quiet = Quiet()
    places = quiet.put(*(b"%d" % index for index in range(8)))
    for node in NODES:
        quiet.flip(node, places[3])
    quiet.run(2.0)  # each reads it, asks the others, and is told
    for node in NODES:
        assert quiet.ledger(node).named is not None
        with pytest.raises(Corrupt, match=r"00000001\.log: .* cannot be read"):
            quiet.paxos(node).entry(places[3])
        assert quiet.paxos(node).entry(places[4])


def test_a_slot_that_all_have_lost_and_no_state_holds_stops_the_replica() -> None:
    quiet = Quiet()
    places = quiet.put(*(b"%d" % index for index in range(8)))
    for node in NODES:
        quiet.flip(node, places[3])
    quiet.restart(*NODES)
    with pytest.raises(Crippled, match=f"no other replica can read slot {places[3]} either"):
        quiet.run(5.0)


def test_a_replica_whose_last_promise_may_be_lost_takes_its_seat_in_another_life() -> None:
    quiet = Quiet()
    victim = next(node for node in NODES if node != quiet.leader)
    quiet.put(*(b"%d" % index for index in range(4)))
    last = quiet.paxos(victim)._records.last  # idle: the log notes that all of it was synced
    quiet.flip_record(victim, last)
    quiet.restart(victim)
    assert quiet.paxos(victim).state.membership.incarnation != 1
    assert not quiet.paxos(victim).state.membership.is_member
    quiet.run(5.0)
    assert quiet.paxos(victim).state.membership.is_member
    assert whole(quiet)
