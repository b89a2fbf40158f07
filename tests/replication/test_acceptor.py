"""REP-1: an acceptor answers only once its records are on disk, and never below its promise."""

from __future__ import annotations

from dataclasses import replace

from oncecast.kernel.protocol import Append, Emit, Later, Send
from oncecast.replication.events import LeaderChanged
from oncecast.replication.messages import (
    Accept,
    Accepted,
    Again,
    Beat,
    Canvass,
    Consent,
    Entry,
    Heard,
    Prepare,
    Promise,
    Promised,
    Reject,
    Release,
    Silence,
    Stored,
    Vote,
)
from tests.replication.replicas import (
    OPTIONS,
    A,
    B,
    C,
    D,
    ballot,
    command,
    hear,
    records,
    restored,
    sends,
    started,
    steady,
    sync,
    vouch,
)

SUSPICION = OPTIONS.suspicion
PATIENCE = SUSPICION * 1.125
X, Y = command(b"x"), command(b"y")


def test_promise_is_sent_only_after_its_record_is_on_disk() -> None:
    group = started()
    assert hear(group, A, Prepare(ballot(1), 1)) == [
        Append(Promised(ballot(1), vouch(0)), 2),
        Later(4 * OPTIONS.resend, Silence()),
        Send(A, Promise(ballot(1), 1, 1, 0, (), ()), after=2),
    ]


def test_replica_waits_after_a_promise_before_it_becomes_a_candidate() -> None:
    """REP-5: otherwise both replicas would become candidates at about the same time."""
    group = started()
    assert Later(4 * OPTIONS.resend, Silence()) in hear(group, A, Prepare(ballot(1), 1))
    assert Later(4 * OPTIONS.resend, Silence()) not in hear(group, A, Prepare(ballot(1), 1))
    group.now += 4 * OPTIONS.resend
    group.timeout(Silence())
    assert (A, Canvass(1)) in sends(group.drain())


def test_wait_after_a_promise_grows_with_each_failed_election() -> None:
    """REP-5: an election takes a round trip and two writes, and `resend` may be shorter. Otherwise
    two candidates could end each other's elections forever."""
    group = started(options=replace(OPTIONS, resend=0.01))
    waits = [0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.0, 2.0]
    for round, wait in enumerate(waits, 1):
        assert Later(wait, Silence()) in hear(group, A, Prepare(ballot(round), 1))
    hear(group, A, Beat(ballot(len(waits)), 0, 1.0))
    group.now += OPTIONS.suspicion
    assert Later(0.04, Silence()) in hear(group, A, Prepare(ballot(50), 1))


def test_candidate_waits_longer_after_each_rejection() -> None:
    """REP-5"""
    group = started(options=replace(OPTIONS, resend=0.01))
    waits: list[float] = []
    for round in range(1, 10):
        group.leader.stand()
        group.drain()
        last = hear(group, A, Reject(ballot(10 * round, C)))[-1]
        assert isinstance(last, Later)
        waits.append(last.delay)
    assert all(0.01 * 2**at <= wait <= 0.04 * 2**at for at, wait in enumerate(waits[:6]))
    assert all(0.5 <= wait <= 2.0 for wait in waits[6:])


def test_replica_without_a_leader_consents_to_a_canvass_without_a_disk_write() -> None:
    assert hear(started(), A, Canvass(1)) == [Send(A, Consent(1), after=0)]


def test_follower_of_another_leader_does_not_consent_to_a_canvass() -> None:
    group = started()
    hear(group, C, Beat(ballot(1, C), 0, 1.0))
    assert hear(group, A, Canvass(1)) == []
    assert hear(group, C, Canvass(1)) == [Send(C, Consent(1), after=0)]
    group.now += OPTIONS.suspicion
    assert hear(group, A, Canvass(1)) == [Send(A, Consent(1), after=0)]


def test_repeated_prepare_is_answered_again_but_not_stored_again() -> None:
    group = started()
    hear(group, A, Prepare(ballot(1), 1))
    assert hear(group, A, Prepare(ballot(1), 1)) == [
        Send(A, Promise(ballot(1), 1, 1, 0, (), ()), after=2)
    ]


def test_promise_reports_votes_at_and_after_the_requested_slot() -> None:
    group = started()
    items = (command(b"one"), command(b"two"))
    hear(group, A, Accept(ballot(1), 1, items, 0))
    group.now += 10
    (_, promise), *_ = sends(hear(group, C, Prepare(ballot(2, C), 2)))
    votes = (Vote(2, ballot(1), items[1]),)
    assert promise == Promise(ballot(2, C), 1, 2, 0, votes, ())


def test_promise_lists_the_chosen_slots_and_omits_their_votes() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (command(b"one"), command(b"two")), 0))
    hear(group, A, Beat(ballot(1), 1, 5.0))
    group.now += 10
    (_, promise), *_ = sends(hear(group, C, Prepare(ballot(2, C), 1)))
    votes = (Vote(2, ballot(1), command(b"two")),)
    assert promise == Promise(ballot(2, C), 1, 1, 1, votes, ())


def test_rejection_names_the_promised_ballot() -> None:
    group = started()
    hear(group, C, Prepare(ballot(3, C), 1))
    reported = [Send(A, Reject(ballot(3, C)), after=2)]
    assert hear(group, A, Prepare(ballot(2), 1)) == reported
    assert hear(group, A, Accept(ballot(2), 1, (command(b"x"),), 0)) == reported
    assert hear(group, A, Beat(ballot(2), 0, 1.0)) == reported


def test_message_is_ignored_if_its_ballot_belongs_to_another_node() -> None:
    group = started()
    assert hear(group, C, Prepare(ballot(1, A), 1)) == []
    assert hear(group, C, Accept(ballot(1, A), 1, (command(b"x"),), 0)) == []
    assert hear(group, C, Beat(ballot(1, A), 0, 1.0)) == []


def test_accepted_value_is_stored_once_and_announced_after_it_is_on_disk() -> None:
    group = started()
    effects = hear(group, A, Accept(ballot(1), 1, (command(b"x"),), 0))
    assert [each for each in effects if isinstance(each, Append | Send)] == [
        Append(Entry(1, ballot(1), 0, b"x", 0, vouch(1)), 2),
        Send(A, Accepted(ballot(1), 1, 1, 1), after=2),
        Send(C, Accepted(ballot(1), 1, 1, 1), after=2),
        Send(B, Stored(2), after=2),
    ]


def test_repeated_accept_is_answered_and_not_stored_again() -> None:
    group = started()
    accept = Accept(ballot(1), 1, (command(b"x"),), 0)
    hear(group, A, accept)
    effects = hear(group, A, accept)
    assert records(effects) == []
    assert (C, Accepted(ballot(1), 1, 1, 1)) in sends(effects)


def test_same_value_with_a_higher_ballot_is_not_written_again() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (command(b"x" * 99),), 0))
    sync(group)
    again = hear(group, C, Accept(ballot(2, C), 1, (command(b"x" * 99),), 0))
    assert records(again) == [Again(1, ballot(2, C), vouch(1, replaced=1))]


def test_higher_ballot_replaces_an_accepted_value() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (command(b"x"),), 0))
    other = hear(group, C, Accept(ballot(2, C), 1, (command(b"y"),), 0))
    assert records(other) == [Entry(1, ballot(2, C), 0, b"y", 0, vouch(1, replaced=1))]
    assert group.state.values.item(1) == command(b"y")


def test_replica_does_not_accept_slots_too_far_ahead() -> None:
    """Memory is bounded, however far ahead the leader is."""
    group = started()
    reach = group.options.ahead_slots
    near_and_far = (command(b"near"), command(b"far"))
    effects = hear(group, A, Accept(ballot(1), reach, near_and_far, 0))
    assert records(effects) == [Entry(reach, ballot(1), 0, b"near", 0, vouch(reach))]
    assert (A, Accepted(ballot(1), reach, reach, 1)) in sends(effects)
    effects = hear(group, A, Accept(ballot(1), reach + 1, (command(b"far"),), 0))
    assert records(effects) == []
    assert not any(isinstance(message, Accepted) for _, message in sends(effects))


def test_follower_makes_no_promises_to_candidates_within_the_suspicion_time() -> None:
    group = started()
    hear(group, A, Beat(ballot(1), 0, 7.5))
    group.now += group.options.suspicion - 0.01
    assert hear(group, C, Prepare(ballot(2, C), 1)) == []
    group.now += 0.01
    assert records(hear(group, C, Prepare(ballot(2, C), 1))) == [Promised(ballot(2, C), vouch(0))]


def test_first_answer_to_a_leader_waits_until_its_ballot_is_on_disk() -> None:
    """Later answers to the same leader do not wait."""
    group = started()
    effects = hear(group, A, Beat(ballot(1), 0, 7.5))
    assert records(effects) == [Promised(ballot(1), vouch(0))]
    assert Send(A, Heard(ballot(1), 7.5, 1, 0, OPTIONS.suspicion), after=2) in effects
    effects = hear(group, A, Beat(ballot(1), 0, 8.5))
    assert records(effects) == []
    assert Send(A, Heard(ballot(1), 8.5, 1, 0, OPTIONS.suspicion), after=2) in effects


def test_answer_to_a_beat_waits_only_for_the_first_vote_with_that_ballot() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (command(b"one"), command(b"two")), 0))
    hear(group, A, Accept(ballot(1), 3, (command(b"three"),), 0))
    effects = hear(group, A, Beat(ballot(1), 0, 7.5))
    assert Send(A, Heard(ballot(1), 7.5, 1, 0, OPTIONS.suspicion), after=2) in effects


def test_restarted_replica_rejects_leaders_older_than_the_last_one_it_answered() -> None:
    """REP-5: otherwise an older leader could end a newer leader's lease."""
    before = started()
    answered = records(hear(before, C, Beat(ballot(2, C), 0, 7.5)))
    group = restored(*answered)
    group.start()
    group.drain()
    assert sends(hear(group, A, Beat(ballot(1), 0, 9.5))) == [(A, Reject(ballot(2, C)))]
    assert hear(group, A, Release(ballot(1), A)) == []
    assert hear(group, A, Prepare(ballot(3), 1)) == []


def test_follower_promises_a_higher_ballot_to_its_own_leader_at_any_time() -> None:
    group = started()
    hear(group, A, Beat(ballot(1), 0, 7.5))
    assert records(hear(group, A, Prepare(ballot(2), 1))) == [Promised(ballot(2), vouch(0))]


def test_lease_granted_to_a_leader_survives_a_restart() -> None:
    group = started()
    group.now = 0.0
    group.state.following.heard = 0.0  # the initial value that `start` sets
    assert hear(group, C, Prepare(ballot(1, C), 1)) == []


def test_release_ends_the_lease_at_once() -> None:
    group = started()
    hear(group, A, Beat(ballot(1), 0, 7.5))
    assert sends(hear(group, A, Release(ballot(1), C))) == []
    assert records(hear(group, C, Prepare(ballot(2, C), 1))) == [Promised(ballot(2, C), vouch(0))]


def test_old_release_does_not_end_a_newer_lease() -> None:
    group = started()
    hear(group, C, Beat(ballot(2, C), 0, 7.5))
    hear(group, A, Release(ballot(1), B))
    assert hear(group, A, Prepare(ballot(3), 1)) == []
    assert group.leader.term is None


def test_successor_named_in_a_release_becomes_a_candidate_at_once() -> None:
    group = started()
    hear(group, A, Beat(ballot(1), 0, 7.5))
    effects = hear(group, A, Release(ballot(1), B))
    assert records(effects) == [Promised(ballot(2, B), vouch(0))]
    assert [to for to, message in sends(effects) if isinstance(message, Prepare)] == [A, C]


def test_beat_restarts_the_suspicion_timer() -> None:
    group = started()
    effects = hear(group, A, Beat(ballot(1), 0, 7.5))
    (delay,) = [each.delay for each in effects if isinstance(each, Later)]
    assert any(isinstance(each, Later) and each.timer == Silence() for each in effects)
    assert group.options.suspicion <= delay <= 1.25 * group.options.suspicion


# -- following --


def test_first_beat_from_a_leader_is_stored_as_a_promise_and_reported() -> None:
    group = steady(started())
    assert hear(group, A, Beat(ballot(1), 0, 7.5, 77)) == [
        Later(PATIENCE, Silence()),
        Emit(LeaderChanged(A), after=0),
        Append(Promised(ballot(1), vouch(0)), 2),
        Send(A, Heard(ballot(1), 7.5, 1, 0, SUSPICION), after=2),
    ]
    following = group.state.following
    assert (following.leader, following.ballot, following.heard) == (
        A,
        ballot(1),
        100.0,
    )


def test_non_member_stays_with_the_first_group_that_it_learns_from() -> None:
    """REP-5: otherwise it would mix the logs of two groups."""
    group = started(D)
    hear(group, A, Beat(ballot(1), 0, 7.5, 77))
    group.state.membership.adopted = 77
    assert group.state.membership.group == 77
    hear(group, A, Beat(ballot(1), 0, 8.5, 0))
    assert group.state.membership.group == 77


def test_accept_with_a_higher_ballot_is_a_promise_even_if_no_value_is_stored() -> None:
    """The slot is too far ahead to be stored, but lower ballots must be rejected."""
    group = started()
    far = 4 * OPTIONS.window_slots + 1
    effects = hear(group, A, Accept(ballot(4), far, (X,), 0))
    assert records(effects) == [Promised(ballot(4), vouch(0))]
    assert group.state.votes.promised == ballot(4)
    assert sends(hear(group, C, Prepare(ballot(3, C), 1))) == [(C, Reject(ballot(4)))]


def test_vote_is_sent_even_to_a_leader_outside_the_known_membership() -> None:
    group = started()
    effects = hear(group, D, Accept(ballot(1, D), 1, (X,), 0))
    assert [to for to, each in sends(effects) if isinstance(each, Accepted)] == [A, C, D]


def test_release_from_a_node_other_than_the_leader_is_ignored() -> None:
    group = started()
    hear(group, A, Beat(ballot(1), 0, 7.5))
    assert hear(group, C, Release(ballot(1, A), B)) == []
    assert (group.state.following.heard, group.leader.term) == (100.0, None)


def test_promise_reports_no_votes_for_chosen_slots() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (X, Y), 0))
    group.state.progress.certain = 1
    group.now += 10
    (_, answer) = sends(hear(group, C, Prepare(ballot(2, C), 1)))[0]
    assert answer == Promise(ballot(2, C), 1, 1, 1, (Vote(2, ballot(1), Y),), ())


def test_replica_follows_a_leader_only_if_it_is_live_and_caught_up() -> None:
    """REP-5"""
    group = started()
    assert not group.follows(group.now)
    hear(group, A, Beat(ballot(1), 0, 1.0))
    assert group.follows(group.now)
    assert not group.follows(group.now + SUSPICION)
    hear(group, A, Beat(ballot(1), 1, 2.0))
    assert not group.follows(group.now), "slot 1 is chosen but not applied"
    hear(group, A, Accept(ballot(1), 1, (X,), 0))
    sync(group)
    hear(group, A, Beat(ballot(1), 1, 3.0))
    assert group.follows(group.now)
    group.state.following.lose_leader()
    assert not group.follows(group.now)
