"""REP-1 REP-5: a replica with a full disk stops with an error, and the group continues."""

from __future__ import annotations

import pytest

from oncecast.errors import DiskFull
from oncecast.kernel.protocol import NodeId
from oncecast.lab.scenarios.paxos_checks import replica
from oncecast.lab.scenarios.paxos_ledger import Put
from tests.replication.quiet import NODES, Quiet

LARGE = b"x" * 2048


def put_until_it_stops(quiet: Quiet, victim: NodeId) -> int:
    """Put values until `victim` stops, and return the number of puts before that."""
    for _ in range(100):
        quiet.sim.ask(quiet.leader, Put(0, quiet.sequence, LARGE))
        quiet.run(0.2)
        if replica(quiet.sim, victim) is None:
            return quiet.sequence
        quiet.sequence += 1
    raise AssertionError(f"the disk of {victim} never fills up")


@pytest.mark.parametrize("leads", [False, True])
def test_replica_with_a_full_disk_stops_and_the_group_continues(leads: bool) -> None:
    quiet = Quiet()
    victim = next(node for node in NODES if (node == quiet.leader) == leads)
    state = quiet.sim.nodes[victim]
    assert state.disk is not None
    state.disk.fill()
    before = put_until_it_stops(quiet, victim)
    assert isinstance(state.halted, DiskFull)
    assert "no disk space for a segment" in str(state.halted)
    assert "free up disk space" in str(state.halted)

    quiet.run(3.0)
    quiet.sequence = quiet.ledger(quiet.leader).next[0]  # the last put may have failed
    assert quiet.sequence >= before
    quiet.put(b"without it", b"next")

    state.disk.free()
    quiet.sim.restart(victim)
    quiet.run(5.0)
    ledgers = [quiet.ledger(node) for node in NODES]
    assert [each.next for each in ledgers] == [{0: quiet.sequence}] * 3
    assert len({each.digest() for each in ledgers}) == 1


def test_replica_stops_again_and_keeps_its_log_if_its_disk_is_still_full() -> None:
    quiet = Quiet()
    victim = next(node for node in NODES if node != quiet.leader)
    state = quiet.sim.nodes[victim]
    assert state.disk is not None
    quiet.put(b"one")
    state.disk.fill()
    put_until_it_stops(quiet, victim)
    quiet.sim.restart(victim)
    quiet.run(3.0)
    assert isinstance(state.halted, DiskFull)
    state.disk.free()
    quiet.sim.restart(victim)
    quiet.run(5.0)
    assert quiet.ledger(victim).digest() == quiet.ledger(quiet.leader).digest()
