"""REP-1: however many records a disk loses, a replica applies only what was chosen, and forgets no
vote without saying so."""

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
    Piece,
    Prepare,
    Promise,
    Promised,
    Reborn,
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
    awake,
    ballot,
    command,
    events,
    hear,
    leading,
    records,
    restored,
    sends,
    sync,
    vouch,
)
from tests.replication.test_restart import damage, entry, promise_of, told

SMALL = GroupOptions(compare_every=0.0, window_slots=2)


def reborn_entry(slot: int, applied: int, replaced: int = 0) -> Entry:
    """A vote that was given in the second life of a disk."""
    return Entry(slot, ballot(9), 0, b"%d" % slot, applied, vouch(slot, 1, replaced))


# -- another life --


def test_a_value_of_an_earlier_life_is_not_taken_for_what_was_learned_and_lost_since() -> None:
    """The vote that replaced it is lost, and so is the record of what was chosen instead."""
    before = damage(restored(entry(1), entry(2, data=b"old", applied=1)), Reborn(42))
    group = damage(before, reborn_entry(3, applied=2))
    group.start()
    assert told(group) == [(1, b"1")]
    assert group.state.values.index.get(2) is None


def test_a_value_of_an_earlier_life_is_dropped_as_soon_as_another_life_begins() -> None:
    group = damage(restored(entry(1), entry(2, data=b"old", applied=1)))
    group.start()
    assert (group.applied, group.state.values.index.get(1), group.state.values.index.get(2)) == (
        1,
        2,
        None,
    )
    assert group.state.values.items == {}


def test_a_lost_rebirth_raises_doubt_about_all_votes_before_it() -> None:
    """Votes of the new life replace none of the earlier one, so no count tells of them."""
    group = damage(restored(entry(1), entry(2, data=b"old", applied=1)), reborn_entry(3, applied=2))
    group.start()
    assert told(group) == [(1, b"1")]
    assert group.state.membership.incarnation not in (1, 42)


def test_a_snapshot_newer_than_a_rebirth_does_not_count_it_twice() -> None:
    """Or each restart would begin another life, and lose its seat."""
    state = Checkpoint(
        (b"",), 1, 1, 42, ballot(9), Vouch(3, 1, 2), THREE, 0, ((1, 2, 2), (3, 5, 1)), ()
    )
    log = (entry(2, applied=1), Reborn(42, 1), reborn_entry(3, applied=1, replaced=2))
    group = restored(state, *log)
    group.start()
    assert (
        group.state.membership.incarnation,
        group.state.votes.rebirths,
        group.state.votes.estranged,
    ) == (42, 1, False)
    assert list(group.state.votes.ballots) == [3]


# -- more damage than at the last restart --


def test_votes_that_were_doubted_once_are_doubted_again_if_more_is_lost() -> None:
    """The record that gave rise to the doubt is damaged by the time of the next restart."""
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


def test_a_state_that_was_taken_is_not_forgotten_with_the_record_that_says_so() -> None:
    """What was voted for before it may never have been chosen."""
    group = restored(entry(1, data=b"never chosen"))
    group.start()
    hear(group, A, Ahead(5, 6, 0, THREE, 1))
    effects = hear(group, A, Piece(5, 0, b"state", True))
    assert Skipped(5) in records(effects)
    (written,) = records(hear(group, A, Accept(ballot(2), 6, (command(b"6"),), 5)))
    assert isinstance(written, Entry)
    group = damage(restored(entry(1, data=b"never chosen")), written)
    group.start()
    assert told(group) == []
    assert promise_of(group).known == 5


@pytest.mark.parametrize("lost", [Learned(1, 0, b"new"), Skipped(1)])
def test_what_a_restart_reads_is_noticed_if_a_later_restart_cannot_read_it(
    lost: Learned | Skipped,
) -> None:
    """No vote has counted it before the first of the two."""
    log = [entry(1, data=b"old"), entry(2), entry(3)]
    group = restored(*log, lost)
    group.start()
    group.drain()
    (written,) = records(hear(group, A, Accept(ballot(1), 4, (command(b"4"),), 0)))
    assert isinstance(written, Entry)
    group = damage(restored(*log), written, entry(5, applied=3, replaced=9))
    group.start()
    assert told(group) == []


# -- what is known to be chosen stays --


def behind_a_hole(options: GroupOptions = SMALL) -> Paxos:
    """A replica that has learned slot 2, and lacks slot 1."""
    group = restored(Learned(2, 0, b"chosen"), options=options)
    group.start()
    group.now = 100.0
    group.drain()
    return group


def test_an_older_leader_does_not_replace_what_was_learned() -> None:
    """REP-2: it was chosen with a ballot that this replica has never heard of."""
    group = behind_a_hole()
    effects = hear(group, A, Accept(ballot(1), 1, (command(b"1"), command(b"other")), 0))
    assert [each.slot for each in records(effects) if isinstance(each, Entry)] == [1]
    effects = hear(group, C, Chosen(1, (command(b"1"),)))
    assert events(effects) == [Decided(1, b"1"), Decided(2, b"chosen")]


def test_a_log_in_which_an_older_leader_did_replace_it_is_read_as_it_was_learned() -> None:
    group = restored(
        Learned(2, 0, b"chosen"), entry(2, data=b"other"), entry(1), entry(3, applied=2)
    )
    assert told(group) == [(1, b"1"), (2, b"chosen")]


def test_an_older_leader_does_not_fill_a_slot_that_is_chosen_and_cannot_be_read() -> None:
    group = damage(restored(entry(1)), entry(3, applied=2))
    group.start()
    group.now = 100.0
    group.drain()
    effects = hear(group, A, Accept(ballot(1), 2, (command(b"other"),), 0))
    assert records(effects) == []
    assert group.applied == 1
    assert sends(effects)[0] == (A, Accepted(ballot(1), 2, 2, 1))


def test_a_promise_reports_what_was_learned_with_the_highest_ballot() -> None:
    """Its vote may be in a record that no restart reads any more."""
    group = behind_a_hole()
    (promise,) = [
        message
        for _, message in sends(hear(group, C, Prepare(ballot(7, C), 1)))
        if isinstance(message, Promise)
    ]
    assert promise.votes == (Vote(2, ballot(7, C), command(b"chosen")),)


def test_a_replica_that_has_learned_a_slot_does_not_say_that_it_never_voted() -> None:
    assert sends(hear(behind_a_hole(), A, Recall(2))) == []


def test_what_a_promise_reports_as_known_stays_lost_until_it_is_applied() -> None:
    """After a restart fewer slots may be known to be chosen: then they must still be lost."""
    group = damage(restored(entry(1)), entry(4, applied=3, top=5))
    assert promise_of(group).lost == ((5, 5),)
    assert group.state.votes.lost == [(2, 3), (5, 5)]


def test_a_leader_that_hears_of_a_chosen_slot_it_has_not_proposed_leads_no_more() -> None:
    """Only a higher ballot can have chosen it: the command must not be called its own."""
    group = leading(options=SMALL)
    hear(group, C, Chosen(2, (command(b"theirs"),)))
    group.request(Propose(1, b"mine"))
    group.request(Propose(2, b"mine, too"))
    group.timeout(Flush())
    assert group.leader.term is None
    assert group.leader.tokens == {}


# -- the table of what is not yet on disk --


def test_a_value_stays_in_memory_until_its_newest_record_is_on_disk() -> None:
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
def test_a_vote_given_again_is_lost_with_its_value(again: bool) -> None:
    group = damage(restored(entry(1)), *([Again(2, ballot(5), vouch(2, replaced=1))] * again))
    if not again:
        damage(group, entry(3))
    promise = promise_of(group)
    assert 2 not in [vote.slot for vote in promise.votes]
    assert any(low <= 2 <= high for low, high in promise.lost)


def test_a_range_that_is_lost_already_is_not_cut_by_an_older_record() -> None:
    state = Checkpoint(
        (b"",), 1, 1, 1, ballot(9), Vouch(9, 0, 0), THREE, 0, ((1, 2, 1),), ((8, 9),)
    )
    group = restored(state, entry(2))
    assert promise_of(damage(group, entry(3, replaced=0))).lost == ((8, 9),)


def test_an_entry_that_a_snapshot_knows_elsewhere_is_not_read_from_an_older_record() -> None:
    """The newer record is damaged: the value must come from another replica."""
    state = Checkpoint(
        (b"",), 2, 1, 1, ballot(1), Vouch(3, 0, 1), THREE, 0, ((1, 2, 1), (2, 6, 1), (3, 4, 1)), ()
    )
    group = restored(state)
    group._records.last = 3
    group.restore(entry(2, data=b"old"))
    assert group.state.values.index.get(2) == 6


# -- alone --


def test_a_founder_takes_no_vote_for_chosen_once_another_replica_has_joined() -> None:
    """REP-1: whatever window it starts with, a vote that another replica must confirm is open."""
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


def test_a_founder_that_restarts_with_much_undecided_applies_it_before_it_starts() -> None:
    """Or a snapshot that is taken on the way would look back too far."""
    alone = Config(1, (Member(A, 1),), 1)
    log = [Entry(slot, ballot(1), 0, b"%d" % slot, 0, vouch(slot)) for slot in range(1, 300)]
    group = restored(*log, me=A, config=alone, options=SMALL)
    group.start()
    assert [slot for slot, _ in told(group)] == list(range(1, 300))
    assert [each for each in events(group.drain()) if isinstance(each, Decided)] == []
    assert group.leader.term is not None
    group.request(Compact(299, 299, (b"state",)))


def test_a_membership_that_a_founder_finds_undecided_is_written_twice() -> None:
    alone = Config(1, (Member(A, 1),), 3)
    joined = encode_config(Config(2, (Member(A, 1), Member(B, 1)), 3))
    group = restored(Entry(1, ballot(1), CONFIG, joined, 0, vouch(1)), me=A, config=alone)
    group.start()
    assert records(group.drain()) == [Learned(1, CONFIG, joined)]


# -- more votes than fit in one message --


def test_a_promise_that_has_no_room_for_all_votes_calls_the_rest_lost() -> None:
    """REP-2: a message that no frame holds would be dropped, and nobody elected."""
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


def test_a_candidate_asks_again_who_could_not_report_all() -> None:
    group = awake(A)
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


def test_a_check_that_is_long_past_is_not_compared() -> None:
    """A replica that was far behind comes upon many checks in one step."""
    group = awake(A)
    group.request(Digest(5, b"mine"))
    assert group.drain() == []
