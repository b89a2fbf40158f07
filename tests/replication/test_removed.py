"""REP-2: a member that is removed while it is down."""

from __future__ import annotations

from oncecast.replication.events import Change
from tests.replication.quiet import NODES, Quiet


def test_member_removed_while_down_learns_of_its_removal_and_offers_itself() -> None:
    quiet = Quiet()
    quiet.put(b"1")
    gone = next(node for node in NODES if node != quiet.leader)
    quiet.sim.crash(gone)
    quiet.run(3.0)
    quiet.sim.ask(quiet.leader, Change(remove=gone, size=2))
    quiet.run(2.0)
    assert quiet.paxos(quiet.leader).state.membership.config.nodes() == [
        node for node in NODES if node != gone
    ]
    quiet.put(b"2")
    quiet.sim.restart(gone)
    quiet.run(5.0)
    assert not quiet.paxos(gone).state.membership.is_member
    assert gone in quiet.paxos(quiet.leader).state.roster.offers
