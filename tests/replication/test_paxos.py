"""REP-1: test a whole replica: incarnations, comparisons, leases and sources."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from oncecast.kernel.protocol import Later, NodeId, Send, Value
from oncecast.lab.scenarios.paxos import PAXOS
from oncecast.lab.scenarios.scenario import run
from oncecast.replication.messages import (
    CHECK,
    Accept,
    BeatDue,
    Chosen,
    Entry,
    Item,
    Lacking,
    NewIncarnation,
    OfferDue,
    Prepare,
    Promised,
    Recall,
    Recalled,
    Sum,
    Unanswered,
    Want,
)
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Config, Member
from tests.replication.replicas import (
    OPTIONS,
    THREE,
    A,
    B,
    C,
    D,
    E,
    Recorded,
    ballot,
    command,
    hear,
    leading,
    records,
    restored,
    sends,
    started,
    unstarted,
    vouch,
)


class Zeros(Random):
    """A random generator that returns only zeros."""

    def getrandbits(self, k: int, /) -> int:
        return 0


def test_incarnation_is_never_0() -> None:
    """REP-2: 0 means an unknown incarnation."""
    group = Paxos(A, Zeros(), options=OPTIONS)
    group.attach(Recorded())
    group.start()
    assert group.state.membership.incarnation > 0
    assert group.state.membership.config == Config(
        1, (Member(A, group.state.membership.incarnation),), 3, group.state.membership.incarnation
    )
    damaged = restored(Promised(ballot(1), vouch(0)))
    damaged.rng = Zeros()
    damaged.damaged(3, 4)
    damaged.start()
    assert damaged.state.membership.incarnation > 0


def test_replica_that_may_have_lost_a_promise_counts_its_incarnations() -> None:
    """REP-1"""
    group = restored(Promised(ballot(1), vouch(0)))
    group.damaged(3, 4)
    group.start()
    assert NewIncarnation(group.state.membership.incarnation, 1) in records(group.drain())
    again = restored(Promised(ballot(1), vouch(0)), NewIncarnation(7, 4))
    again.damaged(4, 5)
    again.start()
    assert NewIncarnation(again.state.membership.incarnation, 5) in records(again.drain())


def checks(group: Paxos, now: float) -> int:
    """Return how many comparisons the leader proposes to B at this time."""
    group.now = now
    group.timeout(BeatDue())
    accepts = [each for to, each in sends(group.drain()) if isinstance(each, Accept) and to == B]
    return sum(item == Item(CHECK, b"") for each in accepts for item in each.items)


def test_leader_proposes_comparisons_periodically() -> None:
    """REP-1"""
    group = leading(options=replace(OPTIONS, compare_every=0.5))
    found = [checks(group, now) for now in (100.0, 100.25, 100.5, 100.75, 101.0)]
    assert found == [1, 0, 1, 0, 1]
    alone = leading(config=Config(1, THREE.members[:1], 1), options=group.options)
    alone.timeout(BeatDue())
    assert alone.comparison.compared == 0.0
    assert checks(leading(), 101.0) == 0


def test_digests_from_the_last_four_checks_are_kept() -> None:
    """REP-1"""
    group = started()
    for slot in range(1, 7):
        hear(group, C, Sum(slot, 0, b"digest"))
    assert list(group.comparison.sums) == [3, 4, 5, 6]
    assert group.last_message == {C: 100.0}


def test_restarted_replica_keeps_a_lease_that_it_may_have_granted() -> None:
    """REP-5"""
    group = unstarted(A)
    group.now = 50.0
    group.start()
    assert (group.state.following.heard, group.state.membership.history.since) == (50.0, 0)


def test_non_member_offers_itself_as_soon_as_it_starts() -> None:
    """REP-2"""
    group = unstarted(D)
    group.start()
    assert Later(0.0, OfferDue()) in group.drain()


def test_lone_replica_with_an_unchanged_address_keeps_its_membership() -> None:
    """REP-2"""
    one = Config(1, THREE.members[:1], 1)
    entries = [Entry(slot, ballot(1), 0, b"x", slot - 1, vouch(slot)) for slot in (1, 2)]
    group = restored(*entries, me=A, config=one)
    assert group.applied == 1
    group.start()
    assert (group.applied, group.state.membership.history.since) == (2, 0)


def test_non_member_asks_its_contacts_but_a_member_asks_only_members() -> None:
    """REP-1"""
    group = started()
    group.state.membership.contacts = (D,)
    assert group.state.fetching.all_of({A: None, C: None})
    outside = started(E)
    outside.state.membership.contacts = (D,)
    nodes = {A: None, B: None, C: None}
    assert [outside.state.fetching.all_of(each) for each in (nodes, {**nodes, D: None})] == [
        False,
        True,
    ]


def test_candidate_does_not_send_itself_a_second_prepare() -> None:
    """REP-1: the candidate's own promise only waits for its disk."""
    group = started(A)
    group.leader.stand()
    group.drain()
    group.timeout(Unanswered())
    effects = group.drain()
    assert [to for to, each in sends(effects) if isinstance(each, Prepare)] == [B, C]


def test_follower_holds_no_lease() -> None:
    """REP-5"""
    group = started()
    assert not group.leads(group.now)
    assert group.leader.lease_ends() == 0.0


def test_unreadable_slot_is_requested_without_waiting_for_the_disk() -> None:
    """REP-1"""
    group = started()
    hear(group, A, Chosen(1, (command(b"one"),), 1))
    group.state.fetching.holes[1] = {}
    group.state.fetching.want_from(A)
    (want,) = group.drain()
    assert (want.message, want.after) == (Want(1, 1), 0)  # type: ignore[union-attr]
    (recall,) = hear(group, A, Lacking(1, False))
    assert (recall.message, recall.after) == (Recall(1), 0)  # type: ignore[union-attr]


# -- effects that wait for the disk --


AT_ONCE = {
    "Accept",
    "Added",
    "Ahead",
    "Beat",
    "Canvass",
    "Chosen",
    "Compare",
    "Consent",
    "Decided",
    "Guide",
    "Lacking",
    "LeaderChanged",
    "Mended",
    "Piece",
    "Recall",
    "Recalled",
    "Release",
    "Removed",
    "Suspected",
    "Want",
    "WantPiece",
}


AFTER_ALL_RECORDS = {
    "Accepted",
    "Installed",
    "Offer",
    "Prepare",
    "Promise",
    "Reject",
    "StateWanted",
    "Stored",
    "Sum",
}


@pytest.mark.long
def test_only_effects_that_depend_on_records_wait_for_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow disk must not delay the other messages."""
    seen: dict[str, set[int]] = {}
    send, emit = Paxos.send, Paxos.emit

    def watched_send(self: Paxos, to: NodeId, message: Value, after: int = -1) -> None:
        seen.setdefault(type(message).__name__, set()).add(after)
        send(self, to, message, after)

    def watched_emit(self: Paxos, event: Value, after: int = -1) -> None:
        seen.setdefault(type(event).__name__, set()).add(after)
        emit(self, event, after)

    monkeypatch.setattr(Paxos, "send", watched_send)
    monkeypatch.setattr(Paxos, "emit", watched_emit)
    for seed in range(4):
        assert run(PAXOS, seed, 3).ok
    seen.pop("Heard")  # a Heard waits only for a promise
    assert {name for name, waits in seen.items() if waits == {0}} <= AT_ONCE
    assert {name for name, waits in seen.items() if waits == {-1}} <= AFTER_ALL_RECORDS
    assert set(seen) <= AT_ONCE | AFTER_ALL_RECORDS
    assert len(seen) > 20


def test_recalled_vote_does_not_wait_for_the_disk() -> None:
    assert hear(started(), A, Recall(1)) == [Send(A, Recalled(1, 1, None), after=0)]
