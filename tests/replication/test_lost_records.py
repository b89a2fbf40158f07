"""REP-1: a replica that loses records applies only chosen values and reports lost votes."""

from __future__ import annotations

import pytest

from oncecast.replication.events import Compact, Decided, Digest, Propose
from oncecast.replication.messages import (
    CONFIG,
    Accept,
    Accepted,
    Again,
    Ahead,
    Checkpoint,
    Chosen,
    Entry,
    Flush,
    Learned,
    NewIncarnation,
    Piece,
    Prepare,
    Promise,
    Promised,
    Recall,
    Skipped,
    Stored,
    Unanswered,
    Vote,
    Vouch,
)
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Config, Member, encode_config
from tests.replication.replicas import (
    THREE,
    A,
    B,
    C,
    ballot,
    command,
    events,
    hear,
    leading,
    records,
    restored,
    sends,
    started,
    sync,
    vouch,
)
from tests.replication.test_restart import applied_values, damage, entry, promise_of

SMALL = GroupOptions(compare_every=0.0, window_slots=2)


def later_entry(slot: int, applied: int, replaced: int = 0) -> Entry:
    """Return a vote by the second incarnation of a disk."""
    return Entry(slot, ballot(9), 0, b"%d" % slot, applied, vouch(slot, 1, replaced))


# -- a new incarnation --


def test_value_from_an_earlier_incarnation_does_not_replace_a_lost_chosen_value() -> None:
    """Both the vote that replaced the value and the record of the chosen value are lost."""
    before = damage(restored(entry(1), entry(2, data=b"old", applied=1)), NewIncarnation(42))
    group = damage(before, later_entry(3, applied=2))
    group.start()
    assert applied_values(group) == [(1, b"1")]
    assert group.state.values.index.get(2) is None


def test_new_incarnation_drops_values_not_known_to_be_chosen() -> None:
    group = damage(restored(entry(1), entry(2, data=b"old", applied=1)))
    group.start()
    assert (group.applied, group.state.values.index.get(1), group.state.values.index.get(2)) == (
        1,
        2,
        None,
    )
    assert group.state.values.items == {}


def test_lost_new_incarnation_record_makes_all_earlier_votes_doubtful() -> None:
    """The new incarnation replaces no earlier votes, so no count reveals the loss."""
    group = damage(restored(entry(1), entry(2, data=b"old", applied=1)), later_entry(3, applied=2))
    group.start()
    assert applied_values(group) == [(1, b"1")]
    assert group.state.membership.incarnation not in (1, 42)


def test_snapshot_after_a_new_incarnation_does_not_count_it_twice() -> None:
    """Otherwise the replica would lose its membership at each restart."""
    state = Checkpoint(
        (b"",), 1, 1, 42, ballot(9), Vouch(3, 1, 2), THREE, 0, ((1, 2, 2), (3, 5, 1)), ()
    )
    log = (entry(2, applied=1), NewIncarnation(42, 1), later_entry(3, applied=1, replaced=2))
    group = restored(state, *log)
    group.start()
    assert (
        group.state.membership.incarnation,
        group.state.votes.renewals,
        group.state.votes.incarnation_lost,
    ) == (42, 1, False)
    assert list(group.state.votes.ballots) == [3]


# -- more damage than at the last restart --


def test_doubtful_votes_stay_doubtful_if_the_next_restart_finds_more_damage() -> None:
    """The record that caused the doubt is damaged at the next restart."""
    log = [entry(1), entry(2, data=b"old")]
    group = damage(restored(*log), Promised(ballot(5), vouch(2, replaced=1)))
    assert group.state.votes.ballots == {}
    group.start()
    group.drain()
    (written,) = records(hear(group, A, Accept(ballot(6), 1, (command(b"1"),), 0)))
    assert isinstance(written, Entry)
    again = damage(restored(*log), written)
    promise = promise_of(again)
    assert promise.votes == (Vote(1, ballot(6), command(b"1")),)
    assert promise.lost == ((2, 2),)


def test_installed_snapshot_is_kept_even_if_its_record_is_lost() -> None:
    """Values with earlier votes may never have been chosen."""
    group = restored(entry(1, data=b"never chosen"))
    group.start()
    hear(group, A, Ahead(5, 6, 0, THREE, 1))
    effects = hear(group, A, Piece(5, 0, b"state", True))
    assert Skipped(5) in records(effects)
    (written,) = records(hear(group, A, Accept(ballot(2), 6, (command(b"6"),), 5)))
    assert isinstance(written, Entry)
    group = damage(restored(entry(1, data=b"never chosen")), written)
    group.start()
    assert applied_values(group) == []
    assert promise_of(group).known == 5


def test_snapshot_of_fewer_slots_makes_no_skipped_vote_count() -> None:
    """A crash before the first snapshot was on disk led to the second one."""
    log = [entry(2, data=b"never chosen"), Skipped(2), Skipped(1), Learned(1, 0, b"1")]
    group = restored(*log)
    group.start()
    assert applied_values(group) == [(1, b"1")]


@pytest.mark.parametrize("lost", [Learned(1, 0, b"new"), Skipped(1)])
def test_record_lost_between_two_restarts_makes_votes_doubtful(
    lost: Learned | Skipped,
) -> None:
    """No vote before the first restart has counted it."""
    log = [entry(1, data=b"old"), entry(2), entry(3)]
    group = restored(*log, lost)
    group.start()
    group.drain()
    (written,) = records(hear(group, A, Accept(ballot(1), 4, (command(b"4"),), 0)))
    assert isinstance(written, Entry)
    group = damage(restored(*log), written, entry(5, applied=3, replaced=9))
    group.start()
    assert applied_values(group) == []


# -- chosen values stay --


def behind_a_hole(options: GroupOptions = SMALL) -> Paxos:
    """Return a replica that has learned slot 2 and lacks slot 1."""
    group = restored(Learned(2, 0, b"chosen"), options=options)
    group.start()
    group.now = 100.0
    group.drain()
    return group


def test_older_leader_does_not_replace_a_learned_value() -> None:
    """REP-2: the value was chosen with a ballot that this replica has not seen."""
    group = behind_a_hole()
    effects = hear(group, A, Accept(ballot(1), 1, (command(b"1"), command(b"other")), 0))
    assert [each.slot for each in records(effects) if isinstance(each, Entry)] == [1]
    effects = hear(group, C, Chosen(1, (command(b"1"),)))
    assert events(effects) == [Decided(1, b"1"), Decided(2, b"chosen")]


def test_restart_prefers_a_learned_value_to_a_later_vote() -> None:
    group = restored(
        Learned(2, 0, b"chosen"), entry(2, data=b"other"), entry(1), entry(3, applied=2)
    )
    assert applied_values(group) == [(1, b"1"), (2, b"chosen")]


def test_older_leader_does_not_fill_an_unreadable_chosen_slot() -> None:
    group = damage(restored(entry(1)), entry(3, applied=2))
    group.start()
    group.now = 100.0
    group.drain()
    effects = hear(group, A, Accept(ballot(1), 2, (command(b"other"),), 0))
    assert records(effects) == []
    assert group.applied == 1
    assert sends(effects)[0] == (A, Accepted(ballot(1), 2, 2, 1))


def test_promise_reports_learned_values_with_the_highest_ballot() -> None:
    """The vote may be in a record that a restart no longer reads."""
    group = behind_a_hole()
    (promise,) = [
        message
        for _, message in sends(hear(group, C, Prepare(ballot(7, C), 1)))
        if isinstance(message, Promise)
    ]
    assert promise.votes == (Vote(2, ballot(7, C), command(b"chosen")),)


def test_recall_for_a_learned_slot_is_not_answered() -> None:
    assert sends(hear(behind_a_hole(), A, Recall(2))) == []


def test_lost_slots_stay_lost_until_they_are_applied() -> None:
    """After a restart, fewer slots may be known to be chosen. The votes are still lost then."""
    group = damage(restored(entry(1)), entry(4, applied=3, top=5))
    assert promise_of(group).lost == ((5, 5),)
    assert group.state.votes.lost == [(2, 3), (5, 5)]


def test_leader_steps_down_instead_of_proposing_for_a_chosen_slot() -> None:
    """Only a leader with a higher ballot can have proposed the chosen value."""
    group = leading(options=SMALL)
    hear(group, C, Chosen(2, (command(b"theirs"),)))
    group.request(Propose(1, b"mine"))
    group.request(Propose(2, b"mine, too"))
    group.timeout(Flush())
    assert group.leader.term is None
    assert group.leader.tokens == {}


# -- values that are not yet on disk --


def test_value_stays_in_memory_until_its_newest_record_is_on_disk() -> None:
    group = restored(options=SMALL)
    group.start()
    group.now = 100.0
    hear(group, A, Accept(ballot(1), 2, (command(b"old"),), 0))
    first = group._records.last
    hear(group, C, Chosen(2, (command(b"new"),)))
    hear(group, B, Stored(first))
    assert group.state.values.items[2] == command(b"new")
    hear(group, B, Stored(group._records.last))
    assert 2 not in group.state.values.items


@pytest.mark.parametrize("again", [False, True])
def test_repeated_vote_is_lost_with_its_value(again: bool) -> None:
    group = damage(restored(entry(1)), *([Again(2, ballot(5), vouch(2, replaced=1))] * again))
    if not again:
        damage(group, entry(3))
    promise = promise_of(group)
    assert 2 not in [vote.slot for vote in promise.votes]
    assert any(low <= 2 <= high for low, high in promise.lost)


def test_older_record_does_not_shorten_a_lost_range() -> None:
    state = Checkpoint(
        (b"",), 1, 1, 1, ballot(9), Vouch(9, 0, 0), THREE, 0, ((1, 2, 1),), ((8, 9),)
    )
    group = restored(state, entry(2))
    assert promise_of(damage(group, entry(3, replaced=0))).lost == ((8, 9),)


def test_older_record_does_not_replace_a_record_named_by_a_snapshot() -> None:
    """The newer record is damaged, so the value must come from another replica."""
    state = Checkpoint(
        (b"",), 2, 1, 1, ballot(1), Vouch(3, 0, 1), THREE, 0, ((1, 2, 1), (2, 6, 1), (3, 4, 1)), ()
    )
    group = restored(state)
    group._records.last = 3
    group.restore(entry(2, data=b"old"))
    assert group.state.values.index.get(2) == 6


# -- a single-node group --


def test_founder_does_not_apply_votes_after_another_replica_joined() -> None:
    """REP-1: the other replica must confirm such a vote, whatever the window size."""
    alone = Config(1, (Member(A, 1),), 3)
    joined = encode_config(Config(2, (Member(A, 1), Member(B, 1)), 3))
    log = [Entry(slot, ballot(1), 0, b"%d" % slot, 0, vouch(slot)) for slot in range(1, 8)]
    log.append(Entry(8, ballot(1), CONFIG, joined, 0, vouch(8)))
    log.append(Entry(9, ballot(1), 0, b"open", 0, vouch(9)))
    group = restored(*log, me=A, config=alone, options=GroupOptions(window_slots=4))
    group.start()
    assert group.applied == 8
    assert group.state.votes.ballots == {9: ballot(1)}
    assert group.leader.term is None


def test_founder_applies_all_its_votes_before_it_starts() -> None:
    """Otherwise a snapshot taken in between would need checksums that are no longer kept."""
    alone = Config(1, (Member(A, 1),), 1)
    log = [Entry(slot, ballot(1), 0, b"%d" % slot, 0, vouch(slot)) for slot in range(1, 300)]
    group = restored(*log, me=A, config=alone, options=SMALL)
    group.start()
    assert [slot for slot, _ in applied_values(group)] == list(range(1, 300))
    assert [each for each in events(group.drain()) if isinstance(each, Decided)] == []
    assert group.leader.term is not None
    group.request(Compact(299, 299, (b"state",)))


def test_founder_rewrites_an_undecided_membership_from_its_log() -> None:
    alone = Config(1, (Member(A, 1),), 3)
    joined = encode_config(Config(2, (Member(A, 1), Member(B, 1)), 3))
    group = restored(Entry(1, ballot(1), CONFIG, joined, 0, vouch(1)), me=A, config=alone)
    group.start()
    assert records(group.drain()) == [Learned(1, CONFIG, joined)]


# -- more votes than fit in one message --


def test_promise_reports_votes_beyond_its_byte_limit_as_lost() -> None:
    """REP-2: a message that exceeds the frame size would be dropped, and no leader elected."""
    options = GroupOptions(compare_every=0.0, window_bytes=1 << 14)
    size = options.promise_bytes // 4
    group = restored(*(entry(slot, data=bytes(size)) for slot in range(1, 10)), options=options)
    promise = promise_of(group)
    assert [vote.slot for vote in promise.votes] == [1, 2, 3, 4]
    assert promise.lost == ((5, 9),)
    (again,) = [
        message
        for _, message in sends(hear(group, C, Prepare(ballot(99, C), 5)))
        if isinstance(message, Promise)
    ]
    assert [vote.slot for vote in again.votes] == [5, 6, 7, 8]


def test_member_that_could_not_report_all_votes_is_asked_again() -> None:
    group = started(A)
    group.leader.stand()
    group.drain()
    assert group.leader.term is not None
    won = group.leader.term.ballot
    hear(group, A, Promise(won, 1, 1, 0, (), ()))
    hear(group, B, Promise(won, 1, 1, 0, (Vote(1, ballot(1), command(b"1")),), ((2, 3),)))
    sync(group)
    hear(group, B, Accepted(won, 1, 1, 1))
    assert group.applied == 1
    group.timeout(Unanswered())
    prepared = [to for to, message in sends(group.drain()) if message == Prepare(won, 2)]
    assert prepared == [B, C]
    votes = (Vote(2, ballot(1), command(b"2")), Vote(3, ballot(1), command(b"3")))
    hear(group, B, Promise(won, 1, 2, 0, votes, ()))
    sync(group)
    hear(group, B, Accepted(won, 2, 3, 1))
    assert group.applied == 3
    assert group.leader.term.acting


def test_digest_from_an_old_check_is_not_sent_to_peers() -> None:
    """A replica that was far behind applies many checks in one step."""
    group = started(A)
    group.request(Digest(5, b"mine"))
    assert group.drain() == []
