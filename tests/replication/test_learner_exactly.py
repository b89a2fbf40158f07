"""REP-1 REP-2: test the exact effects of counting votes and fetching missing slots."""

from __future__ import annotations

import pytest

from oncecast.errors import Crippled
from oncecast.kernel.protocol import Append, Emit, Later, NodeId, Send
from oncecast.replication.events import Decided, Mended
from oncecast.replication.messages import (
    Accept,
    Accepted,
    Again,
    Beat,
    Behind,
    Chosen,
    Entry,
    Item,
    Lacking,
    Learned,
    Recall,
    Recalled,
    Stored,
    Vote,
    Want,
)
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Member
from tests.replication.replicas import (
    OPTIONS,
    A,
    B,
    C,
    D,
    ballot,
    command,
    events,
    hear,
    records,
    restored,
    sends,
    started,
    sync,
    vouch,
)
from tests.replication.test_learner import with_a_hole

RESEND = OPTIONS.resend
X, Y = command(b"x"), command(b"y")
TWO_SLOTS = GroupOptions(compare_every=0.0, window_slots=2)


def behind(group: Paxos) -> list[object]:
    group.timeout(Behind())
    return list(group.drain())


# -- votes --


def test_votes_count_only_for_unapplied_slots_within_ahead_slots() -> None:
    group = started(options=TWO_SLOTS)
    hear(group, A, Chosen(1, (X,)))
    hear(group, A, Accepted(ballot(1), 1, 9999, 1))
    assert (min(group.state.tallies), max(group.state.tallies)) == (2, 1 + 4096)


def test_vote_with_a_higher_ballot_restarts_the_tally_and_a_lower_ballot_is_ignored() -> None:
    group = started()
    hear(group, A, Accepted(ballot(2), 1, 1, 1))
    hear(group, C, Accepted(ballot(1), 1, 1, 1))
    assert (group.state.tallies[1].ballot, list(group.state.tallies[1].voters)) == (
        ballot(2),
        [Member(A, 1)],
    )
    hear(group, C, Accepted(ballot(3), 1, 1, 1))
    assert (group.state.tallies[1].ballot, list(group.state.tallies[1].voters)) == (
        ballot(3),
        [Member(C, 1)],
    )


def test_vote_tally_is_dropped_when_its_slot_is_applied() -> None:
    group = started()
    hear(group, A, Accepted(ballot(1), 1, 2, 1))
    hear(group, A, Chosen(1, (X,)))
    assert list(group.state.tallies) == [2]


def test_own_vote_counts_once_it_is_on_disk_and_only_for_an_open_slot() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (X, Y), 0))
    assert group.state.tallies == {}
    sync(group)
    assert [list(each.voters) for each in group.state.tallies.values()] == [[Member(B, 1)]] * 2
    group = started()
    hear(group, A, Accept(ballot(1), 1, (X,), 0))
    hear(group, A, Chosen(1, (X,)))
    sync(group)
    assert group.state.tallies == {}


def test_chosen_slot_is_not_applied_with_a_value_from_a_lower_ballot() -> None:
    """A majority accepted it with a higher ballot, so the value here may differ."""
    group = started()
    hear(group, A, Accept(ballot(1), 1, (X,), 0))
    hear(group, A, Accepted(ballot(2), 1, 1, 1))
    assert events(hear(group, C, Accepted(ballot(2), 1, 1, 1))) == []
    assert group.state.progress.known == 1
    group = started()
    hear(group, A, Accept(ballot(3), 1, (X,), 0))
    hear(group, A, Accepted(ballot(2), 1, 1, 1))
    assert events(hear(group, C, Accepted(ballot(2), 1, 1, 1))) == [Decided(1, b"x")]


def test_beat_decides_slots_up_to_the_one_it_names() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (X, Y), 0))
    assert events(hear(group, A, Beat(ballot(1), 1, 5.0))) == [Decided(1, b"x")]
    assert (group.learner.leader_knows, group.state.progress.known) == ((ballot(1), 1), 1)
    hear(group, A, Beat(ballot(1), 0, 5.5))  # an older Beat changes nothing
    assert (group.learner.leader_knows, group.state.progress.known) == ((ballot(1), 1), 1)
    assert events(hear(group, A, Beat(ballot(1), 2, 6.0))) == [Decided(2, b"y")]


# -- applying --


def test_slots_are_applied_in_bounded_steps() -> None:
    group = started(options=TWO_SLOTS)
    items = tuple(command(b"%d" % slot) for slot in range(1, 131))
    effects = hear(group, A, Chosen(1, items, 130))
    assert group.applied == 64
    assert Later(0.0, Behind()) in effects
    *decided, again = behind(group)
    assert decided == [Emit(Decided(slot, b"%d" % slot), after=0) for slot in range(65, 129)]
    assert again == Later(0.0, Behind())
    assert behind(group) == [Emit(Decided(slot, b"%d" % slot), after=0) for slot in (129, 130)]


def test_progress_clears_the_list_of_peers_that_lacked_a_slot() -> None:
    group = started()
    group.state.fetching.tried[C] = group.state.fetching.lost_by[C] = None
    hear(group, A, Chosen(2, (Y,)))
    assert (list(group.state.fetching.tried), list(group.state.fetching.lost_by)) == ([C], [C])
    hear(group, A, Chosen(1, (X,)))
    assert (group.state.fetching.tried, group.state.fetching.lost_by) == ({}, {})


def test_missing_slots_set_only_one_timer() -> None:
    group = started()
    assert Later(RESEND, Behind()) in hear(group, A, Beat(ballot(1), 2, 5.0))
    assert group.state.fetching.applied_when_set == 0
    assert Later(RESEND, Behind()) not in hear(group, A, Beat(ballot(1), 3, 6.0))


# -- fetching --


def test_replica_with_missing_slots_asks_one_member_after_another() -> None:
    group = started()
    hear(group, C, Beat(ballot(1, C), 3, 5.0))
    for node in (C, A, C):
        *_, want, wait = behind(group)
        assert (want, wait) == (Send(node, Want(1, 3), after=0), Later(RESEND, Behind()))


def test_replica_without_missing_slots_sends_no_request() -> None:
    group = started()
    assert behind(group) == []
    hear(group, A, Chosen(1, (X,)))
    assert behind(group) == []


def test_replica_waits_after_progress_before_it_requests_slots() -> None:
    group = started()
    hear(group, A, Beat(ballot(1), 3, 5.0))
    hear(group, A, Chosen(1, (X,)))
    assert [each for each in behind(group) if isinstance(each, Send)] == []
    assert (group.state.fetching.applied_when_set, group.applied) == (1, 1)


def test_slots_are_fetched_from_other_members_and_contacts() -> None:
    group = started()
    group.state.membership.contacts = (D, B, A)
    assert group.state.fetching.sources() == [A, C, D]


def test_at_most_16_unreadable_slots_are_requested_at_a_time() -> None:
    group = started()
    for slot in range(1, 20):
        group.state.fetching.note_hole(slot)
    group.drain()
    group.state.fetching.want_from(A)
    assert sends(group.drain()) == [(A, Want(slot, slot)) for slot in range(1, 17)]


def test_unreadable_slot_is_requested_at_once_and_noted_once() -> None:
    group = started()
    group.state.fetching.note_hole(3)
    group.state.fetching.note_hole(3)
    assert group.drain() == [Later(0.0, Behind())]
    assert group.state.fetching.holes == {3: {}}


def test_replica_requests_more_slots_after_a_fetch_only_if_some_are_missing() -> None:
    group = started()
    hear(group, C, Beat(ballot(1, C), 2, 5.0))
    number = group._records.last + 1
    assert hear(group, C, Chosen(1, (X,))) == [
        Append(Learned(1, 0, b"x"), number),
        Send(B, Stored(number), after=number),
        Emit(Decided(1, b"x"), after=0),
        Send(C, Want(2, 2), after=0),
    ]
    assert sends(hear(group, C, Chosen(2, (Y,))))[1:] == []


def test_fetch_without_progress_triggers_no_further_requests() -> None:
    group = started()
    hear(group, C, Beat(ballot(1, C), 3, 5.0))
    assert sends(hear(group, C, Chosen(2, (Y,)))) == [(B, Stored(group._records.last))]


def test_applied_slots_are_not_learned_again() -> None:
    group = started(options=TWO_SLOTS)
    hear(group, A, Chosen(1, (X,)))
    assert records(hear(group, A, Chosen(1, (Y,)))) == []
    assert records(hear(group, A, Chosen(1, (X, Y)))) == [Learned(2, 0, b"y")]


def test_replica_requests_the_extra_slots_that_a_peer_reports() -> None:
    group = started()
    assert sends(hear(group, C, Chosen(1, (X,), 5)))[-1] == (C, Want(2, 5))
    hear(group, A, Chosen(2, (Y,), 3))
    assert group.state.progress.known == 5


def test_newcomer_fetches_from_followers_if_possible() -> None:
    group = started(D)
    group.state.following.leader, group.state.membership.contacts = A, (A, B)
    assert {group.state.fetching._choose([A, B]) for _ in range(20)} == {B}
    assert group.state.fetching._choose([A]) == A
    assert {group.state.fetching._choose([B, C]) for _ in range(20)} == {B, C}
    member = started(B)
    member.state.following.leader = A
    assert {member.state.fetching._choose([A, C]) for _ in range(20)} == {A}
    assert member.state.fetching._choose([C]) == C


# -- slots that peers lack --


def test_peer_without_a_slot_is_not_asked_again_at_once() -> None:
    group = started()
    hear(group, C, Beat(ballot(1, C), 3, 5.0))
    assert hear(group, C, Lacking(1, False)) == []
    assert sends(behind(group)) == [(A, Want(1, 3))]  # type: ignore[arg-type]


def test_lost_slot_beyond_the_next_one_does_not_stop_the_replica() -> None:
    group = started()
    group.state.votes.damage = "records 3 to 3 of its log cannot be read"
    hear(group, A, Lacking(2, True))
    hear(group, C, Lacking(2, True))
    assert group.state.fetching.lost_by == {}


def test_slot_lost_by_all_peers_stops_only_a_damaged_replica() -> None:
    group = started()
    hear(group, A, Lacking(1, True))
    hear(group, C, Lacking(1, True))
    assert list(group.state.fetching.lost_by) == [A, C]
    group.state.votes.damage = "records 3 to 3 of its log cannot be read"
    with pytest.raises(Crippled, match="no other replica can read slot 1"):
        hear(group, C, Lacking(1, True))


def test_replica_remembers_which_peers_have_lost_a_slot() -> None:
    group = with_a_hole()
    assert hear(group, A, Lacking(1, True)) == []
    assert group.state.fetching.holes == {1: {A: None}}
    assert not group.state.fetching.gone_everywhere(1)
    hear(group, C, Lacking(1, True))
    assert group.state.fetching.gone_everywhere(1)


def test_non_member_gives_up_on_a_slot_that_none_of_its_sources_has() -> None:
    group = started(D)
    group.state.membership.contacts = (A, B)
    group.state.fetching.holes[1] = dict.fromkeys([A, B])
    assert not group.state.fetching.gone_everywhere(1)
    group.state.fetching.holes[1][C] = None
    assert group.state.fetching.gone_everywhere(1)


# -- recalling --


def test_recall_for_a_slot_known_to_be_chosen_is_not_answered() -> None:
    group = started()
    hear(group, A, Chosen(1, (X,)))
    assert hear(group, C, Recall(1)) == []
    group.state.progress.certain = 3
    assert hear(group, C, Recall(3)) == []
    assert hear(group, C, Recall(4)) == [Send(C, Recalled(4, 1, None), after=0)]


def test_replica_that_has_lost_its_incarnation_answers_a_recall_with_lacking() -> None:
    group = started()
    group.state.votes.incarnation_lost = True
    assert hear(group, C, Recall(4)) == [Send(C, Lacking(4, True), after=0)]


def test_recovered_slot_clears_its_recalled_votes() -> None:
    group = with_a_hole()
    hear(group, A, Recalled(1, 1, Vote(1, ballot(3), command(b"one"))))
    assert list(group.state.fetching.recalled) == [1]
    number = group._records.last + 1
    assert hear(group, C, Recalled(1, 1, None)) == [
        Append(Learned(1, 0, b"one"), number),
        Emit(Mended(1), after=0),
        Send(B, Stored(number), after=number),
    ]
    assert (group.state.fetching.recalled, group.state.fetching.holes) == ({}, {})


def test_slot_is_not_recovered_if_no_member_has_voted() -> None:
    group = with_a_hole()
    hear(group, A, Recalled(1, 1, None))
    assert hear(group, C, Recalled(1, 1, None)) == []
    assert list(group.state.fetching.holes) == [1]


def test_recalled_vote_for_a_readable_slot_is_ignored() -> None:
    group = started()
    assert hear(group, A, Recalled(1, 1, Vote(1, ballot(3), X))) == []
    assert group.state.fetching.recalled == {}


# -- repeated votes --


def test_repeated_vote_counts_with_its_new_ballot_once_it_is_on_disk() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (X,), 0))
    hear(group, C, Accept(ballot(2, C), 1, (X,), 0))
    sync(group)
    assert group.state.tallies[1].ballot == ballot(2, C)
    assert list(group.state.tallies[1].voters) == [Member(B, 1)]


def test_value_without_a_vote_is_written_again_with_the_vote() -> None:
    """Otherwise a restart that cannot read the first record would find a vote without a value."""
    group = restored(Entry(2, ballot(1), 0, b"x", 0, vouch(2)))
    group.state.votes.ballots.clear()
    group.start()
    group.now = 100.0
    written = records(hear(group, A, Accept(ballot(3), 2, (X,), 0)))
    assert [type(each) for each in written] == [Entry]
    assert [type(each) for each in records(hear(group, A, Accept(ballot(4), 2, (X,), 0)))] == [
        Again
    ]


def test_noops_and_commands_with_the_same_bytes_are_different_values() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (command(b""),), 0))
    again = records(hear(group, C, Accept(ballot(2, C), 1, (Item(1, b""),), 0)))
    assert [type(each) for each in again] == [Entry]


def test_stored_message_from_another_node_changes_nothing() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (X,), 0))
    assert hear(group, NodeId("z"), Stored(99)) == []
    assert group.state.values.stored == 0
