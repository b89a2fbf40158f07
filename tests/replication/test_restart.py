"""REP-1: a restart loses nothing, and does not guess the records that a disk has lost."""

from __future__ import annotations

import pytest

from oncecast.errors import Crippled
from oncecast.replication.events import Decided, LeaderChanged, Propose, Removed
from oncecast.replication.messages import (
    CONFIG,
    Again,
    Behind,
    Born,
    Chosen,
    Entry,
    Learned,
    NewIncarnation,
    Prepare,
    Promise,
    Promised,
    Silence,
    Skipped,
    Vote,
    Want,
)
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Config, Member, encode_config
from tests.replication.replicas import (
    THREE,
    A,
    B,
    C,
    Recorded,
    ballot,
    command,
    events,
    hear,
    promise,
    records,
    restored,
    sends,
    sync,
    unstarted,
    vouch,
)


def entry(
    slot: int,
    round: int = 1,
    data: bytes = b"",
    applied: int = 0,
    top: int = 0,
    replaced: int = 0,
) -> Entry:
    return Entry(
        slot,
        ballot(round),
        0,
        data or b"%d" % slot,
        applied,
        vouch(max(slot, top), replaced=replaced),
    )


def applied_values(group: Paxos) -> list[tuple[int, bytes]]:
    assert isinstance(group.learner.machine, Recorded)
    return group.learner.machine.learned


def promise_of(group: Paxos) -> Promise:
    """Return the replica's promise to a candidate after all leases have expired."""
    group.start()
    group.drain()
    group.now = 100.0
    found = [
        message
        for _, message in sends(hear(group, C, Prepare(ballot(99, C), 1)))
        if isinstance(message, Promise)
    ]
    return found[0]


def damage(group: Paxos, *records: Entry | Learned | Promised | Again | NewIncarnation) -> Paxos:
    """Lose one record, then restore the given records."""
    lost = group._records.last + 1
    group._records.last = lost
    group.damaged(lost, lost)
    for record in records:
        group._records.last += 1
        group.restore(record)
    return group


def test_promises_and_votes_are_restored() -> None:
    group = restored(entry(1), entry(2), Promised(ballot(5, C), vouch(2)))
    assert group.state.votes.promised == ballot(5, C)
    assert promise_of(group).votes == (
        Vote(1, ballot(1), command(b"1")),
        Vote(2, ballot(1), command(b"2")),
    )


def test_repeated_vote_is_restored_with_its_last_ballot() -> None:
    group = restored(entry(1), Again(1, ballot(4), vouch(1)))
    assert promise_of(group).votes == (Vote(1, ballot(4), command(b"1")),)


SMALL = GroupOptions(compare_every=0.0, window_slots=2)


def test_slot_with_two_votes_is_restored_with_the_last_value() -> None:
    """REP-1: more slots are pending than a replica holds in memory while it restores its log."""
    pending = [entry(slot) for slot in range(1, 10)]
    group = restored(*pending, entry(2, 5, b"new"), entry(8, 5, b"late"), options=SMALL)
    values = {slot: b"%d" % slot for slot in range(1, 10)} | {2: b"new", 8: b"late"}
    assert {vote.slot: vote.item.data for vote in promise_of(group).votes} == values


def test_slot_with_two_votes_is_applied_with_the_last_value() -> None:
    """REP-1"""
    pending = [entry(slot) for slot in range(1, 10)]
    group = restored(*pending, entry(2, 5, b"new"), entry(10, 5, applied=9), options=SMALL)
    group.start()
    assert applied_values(group) == [
        (slot, b"new" if slot == 2 else b"%d" % slot) for slot in range(1, 10)
    ]


def test_slots_after_a_gap_are_applied_once_the_gap_is_filled() -> None:
    """REP-1: the slots are read again, and only a few are held in memory."""
    tail = [entry(slot, applied=slot - 1) for slot in range(2, 40)]
    group = restored(*tail, options=SMALL)
    assert len(group.state.values.items) <= 2 * SMALL.window_slots
    group = restored(*tail, Learned(1, 0, b"1"), options=SMALL)
    assert len(group.state.values.items) <= 2 * SMALL.window_slots
    group.start()
    assert applied_values(group) == [(slot, b"%d" % slot) for slot in range(1, 39)]


def test_large_values_are_not_all_kept_in_memory_while_the_log_is_restored() -> None:
    """REP-1: memory is bounded in bytes, too."""
    options = GroupOptions(window_slots=64, window_bytes=50)
    sizes = [60, 50, 10, 70]
    log = [entry(slot, data=bytes(size)) for slot, size in enumerate(sizes, 1)]
    group = restored(*log, options=options)
    assert list(group.state.values.items) == [1, 2]
    assert [len(vote.item.data) for vote in promise_of(group).votes] == sizes
    group = restored(*log, entry(5, applied=4, data=b"5"), options=options)
    group.start()
    assert [len(data) for _, data in applied_values(group)] == sizes
    assert (group.state.values.items, group.state.values.held_bytes) == ({}, 0)


def test_slots_marked_as_chosen_in_the_log_are_applied_before_the_start() -> None:
    group = restored(entry(1), entry(2), entry(3, applied=2))
    assert applied_values(group) == [(1, b"1"), (2, b"2")]
    assert promise_of(group).known == 2


def test_learned_values_are_restored() -> None:
    group = restored(entry(1, data=b"mine"), Learned(1, 0, b"theirs"))
    assert applied_values(group) == [(1, b"theirs")]


# -- damage --


def test_damage_to_slots_later_marked_as_chosen_loses_no_votes() -> None:
    group = damage(restored(entry(1)), entry(3, applied=2))
    assert promise_of(group) == Promise(
        ballot(99, C), 1, 1, 2, (Vote(3, ballot(1), command(b"3")),), ()
    )
    assert group.applied == 1  # the rest comes from other replicas


def test_slots_that_may_be_in_a_damaged_record_are_reported_as_lost() -> None:
    """The next record names the highest slot that was accepted by then."""
    group = damage(restored(entry(1), entry(2)), entry(4, applied=1, top=7))
    promise = promise_of(group)
    assert promise.lost == ((3, 3), (5, 7))
    assert promise.votes == (
        Vote(2, ballot(1), command(b"2")),
        Vote(4, ballot(1), command(b"4")),
    )
    assert promise.incarnation == 1


def test_votes_before_the_damage_count_if_no_vote_was_replaced() -> None:
    """Otherwise one lost record would cost all votes in flight."""
    group = damage(restored(entry(1), entry(2), entry(3)), entry(5, applied=4))
    assert applied_values(group) == [(1, b"1"), (2, b"2"), (3, b"3")]


def test_votes_that_a_damaged_record_may_have_replaced_are_doubtful() -> None:
    before = (entry(1), entry(2, data=b"old", applied=1))
    group = damage(restored(*before), entry(3, applied=2, replaced=1))
    assert applied_values(group) == [(1, b"1")]
    assert group.state.values.index.get(2) is None
    group = damage(restored(*before), entry(3, applied=1, replaced=1))
    assert promise_of(group).lost == ((2, 2),)


def test_replacement_after_the_damage_does_not_make_votes_doubtful() -> None:
    group = damage(restored(entry(1), entry(2)), entry(2, 5, b"new", replaced=1))
    promise = promise_of(group)
    assert promise.votes == (
        Vote(1, ballot(1), command(b"1")),
        Vote(2, ballot(5), command(b"new")),
    )
    assert promise.lost == ()


def test_votes_are_doubtful_if_the_number_of_replacements_is_unknown() -> None:
    group = restored(entry(1, replaced=3), Learned(1, 0, b"1"), entry(2, data=b"old", replaced=3))
    assert group.state.votes.counted == 3
    group = restored(entry(1), entry(2, data=b"old"), Learned(2, 0, b"new"))
    assert promise_of(damage(group, entry(4, replaced=1))).lost == ((1, 3),)


def test_possibly_lost_promise_starts_a_new_incarnation() -> None:
    group = damage(restored(entry(1)))
    group.start()
    (renewed,) = [each for each in records(group.drain()) if isinstance(each, NewIncarnation)]
    assert renewed.incarnation == group.state.membership.incarnation != 1
    assert not group.state.membership.is_member
    assert (group.state.votes.lost, group.state.votes.ballots) == ([], {})


def test_learned_record_does_not_prove_that_no_promise_was_lost() -> None:
    group = damage(restored(entry(1)), Learned(1, 0, b"1"))
    group.start()
    assert group.state.membership.incarnation != 1


@pytest.mark.parametrize("record", [entry(2), Promised(ballot(2), vouch(2))])
def test_later_vote_or_promise_proves_that_no_promise_was_lost(record: Entry | Promised) -> None:
    group = damage(restored(entry(1)), record)
    group.start()
    assert group.state.membership.incarnation == 1


def test_lost_new_incarnation_record_is_detected_from_the_next_vote() -> None:
    # This vote follows one new incarnation.
    later = Entry(2, ballot(1), 0, b"2", 0, vouch(2, renewals=1))
    group = damage(restored(entry(1)), later)
    group.start()
    assert group.state.membership.incarnation != 1


def test_new_incarnation_is_restored() -> None:
    group = damage(
        restored(entry(1)),
        NewIncarnation(42),
        Entry(2, ballot(3), 0, b"2", 0, vouch(2, renewals=1)),
    )
    group.start()
    assert group.state.membership.incarnation == 42
    assert list(group.state.votes.ballots) == [2]


def test_replica_without_its_born_record_refuses_to_start() -> None:
    with pytest.raises(Crippled, match="move its data directory aside"):
        unstarted().damaged(1, 1)


def test_lone_replica_with_a_damaged_log_refuses_to_start() -> None:
    group = unstarted(A, Config(1, (Member(A, 1),), 1))
    group.restore(Born(1, Config(1, (Member(A, 1),), 1)))
    group.damaged(2, 2)
    with pytest.raises(Crippled, match="no other replica has them"):
        group.start()


TWO = Config(1, (Member(A, 1), Member(B, 1)), 2)
LEFT = Config(2, (Member(A, 1),), 1)


def left_alone(*later: Entry | Learned | Again) -> Paxos:
    """Return a replica that lost the record of slot 2, and then became the only member."""
    only = encode_config(LEFT)
    membership = Entry(4, ballot(2), CONFIG, only, 3, vouch(4)), Learned(4, CONFIG, only)
    return damage(restored(entry(1), me=A, config=TWO), entry(3), *later, *membership)


def test_lone_replica_starts_if_it_has_fetched_the_damaged_slot_before() -> None:
    """REP-1: the damaged record stays in the log until a snapshot covers it."""
    group = left_alone(Learned(2, 0, b"2"))
    group.start()
    assert applied_values(group) == [(1, b"1"), (2, b"2"), (3, b"3")]
    assert group.applied == 4
    assert events(group.drain()) == [LeaderChanged(A)]
    group.request(Propose(7, b"next"))
    assert events(sync(group)) == [Decided(5, b"next", 7)]


def test_lone_replica_starts_if_it_has_voted_again_for_the_damaged_slot() -> None:
    """REP-1"""
    group = left_alone(entry(2, 2, data=b"2"))
    group.start()
    assert group.applied == 4
    assert group.leads(group.now)


def test_lone_replica_fetches_a_damaged_slot_from_the_member_that_was_removed() -> None:
    """REP-1: the log names this member, because it ends before the removal."""
    group = left_alone()
    group.start()
    assert (group.applied, group.leader.term) == (1, None)
    group.timeout(Behind())
    assert (B, Want(2, 3)) in sends(group.drain())
    assert events(hear(group, B, Chosen(2, (command(b"2"),), 3))) == [
        Decided(2, b"2"),
        Decided(3, b"3"),
        Removed(B),
    ]
    group.now = 100.0
    group.timeout(Silence())
    sync(group)
    promise(group, A, known=4)
    assert group.leads(group.now)


@pytest.mark.parametrize("lost", ["gap", "vote", "end", "incarnation"])
def test_lone_replica_that_lost_a_slot_after_the_removal_refuses_to_start(lost: str) -> None:
    """REP-1: only this replica had the slot. It neither leads with a gap nor reuses the slot."""
    group = left_alone(Learned(2, 0, b"2"))
    if lost == "gap":
        damage(group, entry(6, 2, applied=4))
    elif lost == "vote":
        damage(group, Promised(ballot(3), vouch(5)))
    elif lost == "incarnation":
        damage(group, Entry(5, ballot(3), 0, b"5", 4, vouch(5, renewals=1)))
    else:
        damage(group)
    with pytest.raises(Crippled, match=r"no other replica has them; .* restore a backup"):
        group.start()


@pytest.mark.parametrize("kind", [Entry, Learned])
def test_replica_with_a_damaged_log_asks_the_members_named_in_the_log(kind: type) -> None:
    """The record that adds the second member comes after the damage."""
    group = unstarted(A)
    group.restore(Born(1, Config(1, (Member(A, 1),), 3)))
    group._records.last = 1
    config = encode_config(Config(2, (Member(A, 1), Member(B, 1)), 3))
    if kind is Learned:
        damage(group, Learned(5, CONFIG, config), entry(6, applied=5))
    else:
        membership = Entry(5, ballot(1), CONFIG, config, 4, vouch(5))
        damage(group, membership, entry(6, applied=5))
    group.start()
    assert group.state.fetching.sources() == [B]
    assert group.leader.term is None
    group.timeout(Behind())
    assert (B, Want(1, 5)) in sends(group.drain())


# -- an installed snapshot that a full disk did not save --


def test_votes_before_an_installed_snapshot_are_not_treated_as_chosen() -> None:
    group = restored(entry(1, data=b"never chosen"), Skipped(5), entry(6, applied=5))
    assert applied_values(group) == []
    assert promise_of(group).known == 5


def test_values_learned_before_an_installed_snapshot_are_treated_as_chosen() -> None:
    group = restored(entry(2, data=b"never"), Learned(1, 0, b"1"), Skipped(5), entry(6, applied=5))
    assert applied_values(group) == [(1, b"1")]


def test_founding_membership_is_restored() -> None:
    group = restored()
    assert (group.me, group.state.membership.config, group.state.membership.is_member) == (
        B,
        THREE,
        True,
    )
