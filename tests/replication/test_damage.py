"""REP-1: a damaged record is detected and repaired from other replicas, or reported."""

from __future__ import annotations

import pytest

from oncecast.errors import Corrupt, Crippled
from oncecast.kernel.protocol import NodeId
from tests.replication.quiet import NODES, Quiet

N0, N1, N2 = NODES


def whole(quiet: Quiet) -> bool:
    """Return whether all replicas can read all kept entries and have equal states."""
    kept = list(quiet.ledger(N0).kept)
    for node in NODES:
        for slot, _ in kept:
            quiet.paxos(node).entry(slot)
    return len({quiet.ledger(node).digest() for node in NODES}) == 1


@pytest.mark.parametrize("victim", NODES)
@pytest.mark.parametrize("restarts", [False, True])
def test_flipped_bit_is_detected_and_repaired(victim: NodeId, restarts: bool) -> None:
    """A read or a restart detects the flipped bit, on any replica."""
    quiet = Quiet()
    slots = quiet.put(*(b"%d" % index for index in range(8)))
    quiet.flip(victim, slots[3])
    assert quiet.paxos(victim).state.values.readable(slots[3]) is None
    if restarts:
        quiet.restart(victim)
    quiet.run(5.0)
    assert whole(quiet)
    quiet.put(b"next")
    assert whole(quiet)


@pytest.mark.parametrize("restarts", [False, True])
def test_unreadable_sector_is_repaired_like_a_flipped_bit(restarts: bool) -> None:
    """A read error must not stop the node before it asks the other replicas."""
    quiet = Quiet()
    slots = quiet.put(*(b"%d" % index * 200 for index in range(8)))
    for node in NODES:
        quiet.lose(node, slots[2 + NODES.index(node)])
    assert quiet.paxos(N0).state.values.readable(slots[2]) is None
    if restarts:
        quiet.restart(*NODES)
    quiet.run(8.0)
    assert whole(quiet)
    quiet.put(b"next")
    assert whole(quiet)


@pytest.mark.parametrize("pause", [0.3, 0.004])
def test_different_damage_on_each_replica_is_repaired(pause: float) -> None:
    """With a short pause, many entries are in flight, and none of them marks another as chosen."""
    quiet = Quiet()
    slots = quiet.put(*(b"%d" % index for index in range(19)), pause=pause)
    for node, slot in zip(NODES, slots[8:14:2], strict=True):
        quiet.flip(node, slot)
    quiet.restart(*NODES)
    quiet.run(8.0)
    assert whole(quiet)
    assert [quiet.paxos(node).state.membership.incarnation for node in NODES] == [1, 1, 1]
    quiet.put(b"next")
    assert whole(quiet)


def test_entry_lost_by_all_replicas_is_reported_and_the_rest_is_served() -> None:
    """The error names the file, the byte and the record."""
    quiet = Quiet()
    slots = quiet.put(*(b"%d" % index for index in range(8)))
    for node in NODES:
        quiet.flip(node, slots[3])
    quiet.run(2.0)  # each replica reads it and asks its peers
    for node in NODES:
        assert quiet.ledger(node).read_error is not None
        with pytest.raises(Corrupt, match=r"00000001\.log: .* cannot be read"):
            quiet.paxos(node).entry(slots[3])
        assert quiet.paxos(node).entry(slots[4])


def test_replica_stops_if_every_replica_has_lost_a_slot_not_in_a_snapshot() -> None:
    quiet = Quiet()
    slots = quiet.put(*(b"%d" % index for index in range(8)))
    for node in NODES:
        quiet.flip(node, slots[3])
    quiet.restart(*NODES)
    with pytest.raises(Crippled, match=f"no other replica can read slot {slots[3]}"):
        quiet.run(5.0)


def test_replica_that_may_have_lost_a_promise_rejoins_as_a_new_incarnation() -> None:
    quiet = Quiet()
    victim = next(node for node in NODES if node != quiet.leader)
    quiet.put(*(b"%d" % index for index in range(4)))
    last = quiet.paxos(victim)._records.last  # the log says that all of it was synced
    quiet.flip_record(victim, last)
    quiet.restart(victim)
    assert quiet.paxos(victim).state.membership.incarnation != 1
    assert not quiet.paxos(victim).state.membership.is_member
    quiet.run(5.0)
    assert quiet.paxos(victim).state.membership.is_member
    assert whole(quiet)
