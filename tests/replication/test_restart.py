"""REP-1: a restart forgets nothing; what a disk has lost is not guessed."""

from __future__ import annotations

import pytest

from oncecast.errors import Crippled
from oncecast.replication.messages import (
    CONFIG,
    Again,
    Behind,
    Born,
    Checkpoint,
    Entry,
    Learned,
    Prepare,
    Promise,
    Promised,
    Reborn,
    Skipped,
    Vote,
    Vouch,
    Want,
)
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Config, Member, encode_config
from tests.replication.replicas import (
    THREE,
    A,
    B,
    Book,
    C,
    asleep,
    ballot,
    command,
    hear,
    records,
    restored,
    sends,
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


def told(group: Paxos) -> list[tuple[int, bytes]]:
    assert isinstance(group.learner.machine, Book)
    return group.learner.machine.told


def promise_of(group: Paxos) -> Promise:
    """What it says to somebody who would lead, when all leases are over."""
    group.start()
    group.drain()
    group.now = 100.0
    found = [
        message
        for _, message in sends(hear(group, C, Prepare(ballot(99, C), 1)))
        if isinstance(message, Promise)
    ]
    return found[0]


def damage(group: Paxos, *records: Entry | Learned | Promised | Again | Reborn) -> Paxos:
    """One record is lost, then these come."""
    lost = group._records.last + 1
    group._records.last = lost
    group.damaged(lost, lost)
    for record in records:
        group._records.last += 1
        group.restore(record)
    return group


def test_promises_and_votes_come_back() -> None:
    group = restored(entry(1), entry(2), Promised(ballot(5, C), vouch(2)))
    assert group.state.votes.promised == ballot(5, C)
    assert promise_of(group).votes == (
        Vote(1, ballot(1), command(b"1")),
        Vote(2, ballot(1), command(b"2")),
    )


def test_a_vote_given_again_comes_back_with_its_last_ballot() -> None:
    group = restored(entry(1), Again(1, ballot(4), vouch(1)))
    assert promise_of(group).votes == (Vote(1, ballot(4), command(b"1")),)


SMALL = GroupOptions(compare_every=0.0, window_slots=2)


def test_a_slot_voted_for_again_comes_back_with_its_last_value_however_much_is_pending() -> None:
    """REP-1: more slots are pending than a replica holds in memory while it restores its log."""
    pending = [entry(slot) for slot in range(1, 10)]
    group = restored(*pending, entry(2, 5, b"new"), entry(8, 5, b"late"), options=SMALL)
    values = {slot: b"%d" % slot for slot in range(1, 10)} | {2: b"new", 8: b"late"}
    assert {vote.slot: vote.item.data for vote in promise_of(group).votes} == values


def test_a_slot_voted_for_again_is_applied_with_its_last_value_however_much_is_pending() -> None:
    """REP-1"""
    pending = [entry(slot) for slot in range(1, 10)]
    group = restored(*pending, entry(2, 5, b"new"), entry(10, 5, applied=9), options=SMALL)
    group.start()
    assert told(group) == [(slot, b"new" if slot == 2 else b"%d" % slot) for slot in range(1, 10)]


def test_a_long_tail_behind_a_hole_is_applied_from_the_log_once_the_hole_is_filled() -> None:
    """REP-1: it is read again from the log, and only a little of it is held in memory."""
    tail = [entry(slot, applied=slot - 1) for slot in range(2, 40)]
    group = restored(*tail, options=SMALL)
    assert len(group.state.values.items) <= 2 * SMALL.window_slots
    group = restored(*tail, Learned(1, 0, b"1"), options=SMALL)
    assert len(group.state.values.items) <= 2 * SMALL.window_slots
    group.start()
    assert told(group) == [(slot, b"%d" % slot) for slot in range(1, 39)]


def test_large_values_are_not_all_held_while_the_log_is_restored() -> None:
    """REP-1: memory is bounded in bytes, too."""
    options = GroupOptions(window_slots=64, window_bytes=50)
    sizes = [60, 50, 10, 70]
    log = [entry(slot, data=bytes(size)) for slot, size in enumerate(sizes, 1)]
    group = restored(*log, options=options)
    assert list(group.state.values.items) == [1, 2]
    assert [len(vote.item.data) for vote in promise_of(group).votes] == sizes
    group = restored(*log, entry(5, applied=4, data=b"5"), options=options)
    group.start()
    assert [len(data) for _, data in told(group)] == sizes
    assert (group.state.values.items, group.state.values.held_bytes) == ({}, 0)


def test_what_the_log_itself_says_to_be_chosen_is_learned_before_the_start() -> None:
    group = restored(entry(1), entry(2), entry(3, applied=2))
    assert told(group) == [(1, b"1"), (2, b"2")]
    assert promise_of(group).known == 2


def test_what_was_learned_is_learned_again() -> None:
    group = restored(entry(1, data=b"mine"), Learned(1, 0, b"theirs"))
    assert told(group) == [(1, b"theirs")]


def test_a_state_comes_back_with_all_that_must_not_be_forgotten() -> None:
    group = asleep()
    group._records.last = 30
    runs = ((8, 20, 2),)
    group.restore(
        Checkpoint(
            (b"state",), 9, 8, 77, ballot(6, C), Vouch(12, 2, 5), THREE, 1234, runs, ((11, 12),)
        )
    )
    assert isinstance(group.learner.machine, Book)
    assert group.learner.machine.state == (9, (b"state",))
    assert (
        group.state.membership.incarnation,
        group.state.votes.rebirths,
        group.state.votes.promised,
    ) == (77, 2, ballot(6, C))
    assert (
        group.applied,
        group.state.progress.chain,
        group.state.values.kept,
        group.state.votes.vouch,
    ) == (9, 1234, 8, (12, 2, 5))
    assert [group.state.values.index.get(slot) for slot in (7, 8, 9, 10)] == [None, 20, 21, None]
    assert group.state.votes.lost == [(11, 12)]


# -- damage --


def test_damage_before_what_was_chosen_later_costs_no_vote() -> None:
    group = damage(restored(entry(1)), entry(3, applied=2))
    assert promise_of(group) == Promise(
        ballot(99, C), 1, 1, 2, (Vote(3, ballot(1), command(b"3")),), ()
    )
    assert group.applied == 1  # the rest comes from the others


def test_what_a_damaged_record_may_have_said_is_lost_to_a_vote() -> None:
    """Up to the highest slot that had been accepted by then, as the next record says."""
    group = damage(restored(entry(1), entry(2)), entry(4, applied=1, top=7))
    promise = promise_of(group)
    assert promise.lost == ((3, 3), (5, 7))
    assert promise.votes == (
        Vote(2, ballot(1), command(b"2")),
        Vote(4, ballot(1), command(b"4")),
    )
    assert promise.incarnation == 1


def test_what_stood_before_the_damage_is_good_if_nothing_was_replaced_since() -> None:
    """Or else each of many votes on their way would be lost with one record."""
    group = damage(restored(entry(1), entry(2), entry(3)), entry(5, applied=4))
    assert told(group) == [(1, b"1"), (2, b"2"), (3, b"3")]


def test_what_stood_before_a_damaged_record_may_have_been_replaced_by_it() -> None:
    before = (entry(1), entry(2, data=b"old", applied=1))
    group = damage(restored(*before), entry(3, applied=2, replaced=1))
    assert told(group) == [(1, b"1")]
    assert group.state.values.index.get(2) is None
    group = damage(restored(*before), entry(3, applied=1, replaced=1))
    assert promise_of(group).lost == ((2, 2),)


def test_a_vote_that_replaces_another_itself_raises_no_doubt() -> None:
    group = damage(restored(entry(1), entry(2)), entry(2, 5, b"new", replaced=1))
    promise = promise_of(group)
    assert promise.votes == (
        Vote(1, ballot(1), command(b"1")),
        Vote(2, ballot(5), command(b"new")),
    )
    assert promise.lost == ()


def test_who_does_not_know_what_was_replaced_before_doubts_it() -> None:
    group = restored(entry(1, replaced=3), Learned(1, 0, b"1"), entry(2, data=b"old", replaced=3))
    assert group.state.votes.counted == 3
    group = restored(entry(1), entry(2, data=b"old"), Learned(2, 0, b"new"))
    assert promise_of(damage(group, entry(4, replaced=1))).lost == ((1, 3),)


def test_a_promise_that_may_be_lost_makes_another_life() -> None:
    group = damage(restored(entry(1)))
    group.start()
    (reborn,) = [each for each in records(group.drain()) if isinstance(each, Reborn)]
    assert reborn.incarnation == group.state.membership.incarnation != 1
    assert not group.state.membership.is_member
    assert (group.state.votes.lost, group.state.votes.ballots) == ([], {})


def test_what_was_only_learned_after_the_damage_vouches_for_no_promise() -> None:
    group = damage(restored(entry(1)), Learned(1, 0, b"1"))
    group.start()
    assert group.state.membership.incarnation != 1


@pytest.mark.parametrize("record", [entry(2), Promised(ballot(2), vouch(2))])
def test_a_later_vote_vouches_for_what_was_promised(record: Entry | Promised) -> None:
    group = damage(restored(entry(1)), record)
    group.start()
    assert group.state.membership.incarnation == 1


def test_a_rebirth_that_was_lost_is_noticed_by_whoever_comes_behind_it() -> None:
    later = Entry(2, ballot(1), 0, b"2", 0, vouch(2, rebirths=1))  # by who had been reborn once
    group = damage(restored(entry(1)), later)
    group.start()
    assert group.state.membership.incarnation != 1


def test_a_rebirth_comes_back() -> None:
    group = damage(
        restored(entry(1)), Reborn(42), Entry(2, ballot(3), 0, b"2", 0, vouch(2, rebirths=1))
    )
    group.start()
    assert group.state.membership.incarnation == 42
    assert list(group.state.votes.ballots) == [2]


def test_who_has_lost_its_birth_must_join_anew() -> None:
    with pytest.raises(Crippled, match="move its data directory away"):
        asleep().damaged(1, 1)


def test_who_is_alone_cannot_do_without_any_record() -> None:
    group = asleep(A, Config(1, (Member(A, 1),), 1))
    group.restore(Born(1, Config(1, (Member(A, 1),), 1)))
    group.damaged(2, 2)
    with pytest.raises(Crippled, match="no other replica has them"):
        group.start()


@pytest.mark.parametrize("kind", [Entry, Learned])
def test_who_only_seems_to_be_alone_asks_those_that_its_log_tells_of(kind: type) -> None:
    """What would make it a group of three lies behind the damage."""
    group = asleep(A)
    group.restore(Born(1, Config(1, (Member(A, 1),), 3)))
    group._records.last = 1
    config = encode_config(Config(2, (Member(A, 1), Member(B, 1)), 3))
    if kind is Learned:
        damage(group, Learned(5, CONFIG, config), entry(6, applied=5))
    else:
        told_of = Entry(5, ballot(1), CONFIG, config, 4, vouch(5))
        damage(group, told_of, entry(6, applied=5))
    group.start()
    assert group.state.fetching.sources() == [B]
    assert group.leader.term is None
    group.timeout(Behind())
    assert (B, Want(1, 5)) in sends(group.drain())


# -- a state that was taken, and whose saving a full disk has prevented --


def test_what_was_voted_for_before_a_state_was_taken_is_not_taken_for_chosen() -> None:
    group = restored(entry(1, data=b"never chosen"), Skipped(5), entry(6, applied=5))
    assert told(group) == []
    assert promise_of(group).known == 5


def test_what_was_learned_on_the_way_to_a_state_is_chosen() -> None:
    group = restored(entry(2, data=b"never"), Learned(1, 0, b"1"), Skipped(5), entry(6, applied=5))
    assert told(group) == [(1, b"1")]


def test_the_founders_are_who_they_were() -> None:
    group = restored()
    assert (group.me, group.state.membership.config, group.state.membership.is_member) == (
        B,
        THREE,
        True,
    )
