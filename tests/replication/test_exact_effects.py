"""REP-1 REP-5: what a replica does at each step, effect by effect, and what waits for its disk."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.errors import Crippled
from oncecast.kernel.protocol import Append, Effect, Emit, Later, NodeId, Send, Value
from oncecast.lab.scenarios.paxos import PAXOS
from oncecast.lab.scenarios.scenario import run
from oncecast.replication.events import Decided, HandOver, LeaderChanged, Propose
from oncecast.replication.messages import (
    Accept,
    Accepted,
    Ahead,
    Beat,
    BeatDue,
    Behind,
    Canvass,
    Chosen,
    Consent,
    Entry,
    Flush,
    Heard,
    Item,
    Piece,
    Prepare,
    Promise,
    Promised,
    Recall,
    Recalled,
    Reject,
    Release,
    Silence,
    Stored,
    Unanswered,
    Vote,
    Want,
)
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Config, Member
from tests.replication.replicas import (
    OPTIONS,
    THREE,
    A,
    B,
    C,
    D,
    ballot,
    command,
    events,
    hear,
    leading,
    promise,
    records,
    restored,
    sends,
    started,
    sync,
    vouch,
)

NO_NODE = NodeId("")
SUSPICION, RESEND = OPTIONS.suspicion, OPTIONS.resend
PATIENCE = SUSPICION * 1.125
SLOWEST_LINK = 8 * 1024 * 1024  # bytes a second
X, Y = command(b"x"), command(b"y")


class FixedRandom(Random):
    """A random generator that always returns 0.5."""

    def random(self) -> float:
        return 0.5


def steady(group: Paxos) -> Paxos:
    group.rng = FixedRandom()
    return group


def expire(group: Paxos, timer: Value) -> list[Effect]:
    group.timeout(timer)  # type: ignore[arg-type]
    return group.drain()


def quiet() -> Paxos:
    """Return a leader that all members have promised, and that waits for no answers."""
    group = leading()
    promise(group, C)
    assert expire(group, Unanswered()) == []
    return group


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
    seen.pop("Heard")  # waits for a promise only
    assert {name for name, waits in seen.items() if waits == {0}} <= AT_ONCE
    assert {name for name, waits in seen.items() if waits == {-1}} <= AFTER_ALL_RECORDS
    assert set(seen) <= AT_ONCE | AFTER_ALL_RECORDS
    assert len(seen) > 20


def test_recalled_vote_does_not_wait_for_the_disk() -> None:
    assert hear(started(), A, Recall(1)) == [Send(A, Recalled(1, 1, None), after=0)]


# -- a leader that hears of a higher ballot --


def test_leader_promises_a_higher_ballot_and_steps_down() -> None:
    group = steady(leading())
    group.now += 2 * SUSPICION
    assert hear(group, C, Prepare(ballot(9, C), 1)) == [
        Append(Promised(ballot(9, C), vouch(0)), 3),
        Emit(LeaderChanged(NO_NODE), after=0),
        Later(PATIENCE, Silence()),
        Later(4 * RESEND, Silence()),
        Send(C, Promise(ballot(9, C), 1, 1, 0, (), ()), after=3),
    ]
    assert group.leader.term is None


def test_leader_steps_down_when_it_hears_of_a_vote_with_a_higher_ballot() -> None:
    group = steady(leading())
    assert hear(group, B, Accepted(ballot(9, C), 1, 1, 1)) == [
        Emit(LeaderChanged(NO_NODE), after=0),
        Later(PATIENCE, Silence()),
    ]
    assert group.leader.term is None
    assert group.leader.seen == ballot(9, C)


def test_leader_ignores_a_vote_with_a_lower_ballot() -> None:
    group = leading()
    assert hear(group, B, Accepted(ballot(0, C), 1, 1, 1)) == []
    assert group.leader.term is not None


def test_rejected_leader_ends_its_own_lease_and_waits_before_it_stands_again() -> None:
    group = steady(leading())
    assert hear(group, B, Reject(ballot(9, C))) == [
        Emit(LeaderChanged(NO_NODE), after=0),
        Later(PATIENCE, Silence()),
        Later(RESEND * 2.5, Silence()),
    ]
    assert group.state.following.heard == group.now - SUSPICION
    group.leader.stand()
    assert records(group.drain()) == [Promised(ballot(10), vouch(0))]


def test_rejected_candidate_keeps_the_lease_of_another_leader() -> None:
    group = started(A)
    hear(group, C, Beat(ballot(3, C), 0, 1.0))
    heard = group.state.following.heard
    group.now += 2 * SUSPICION
    group.leader.stand()
    hear(group, B, Reject(ballot(9, C)))
    assert (group.leader.term, group.state.following.heard) == (None, heard)


@pytest.mark.parametrize("round", [0, 1])
def test_rejection_without_a_higher_ballot_is_ignored(round: int) -> None:
    group = leading()
    assert group.leader.term is not None
    assert hear(group, B, Reject(ballot(round))) == []
    assert group.leader.term is not None


def test_rejection_raises_the_next_ballot_of_a_follower() -> None:
    group = started(A)
    assert hear(group, B, Reject(ballot(9, C))) == []
    assert hear(group, B, Reject(ballot(7, C))) == []
    group.leader.stand()
    assert records(group.drain()) == [Promised(ballot(10), vouch(0))]


def test_leader_that_follows_a_higher_ballot_reports_the_change_once() -> None:
    group = leading()
    assert events(hear(group, C, Beat(ballot(9, C), 0, 1.0))) == [
        LeaderChanged(NO_NODE),
        LeaderChanged(C),
    ]
    assert events(hear(group, C, Beat(ballot(9, C), 0, 2.0))) == []
    assert group.state.following.ballot == ballot(9, C)


def test_leader_does_not_step_down_for_its_own_beat() -> None:
    """An old message of the same term changes nothing."""
    group = leading()
    assert group.leader.term is not None
    hear(group, A, Beat(group.leader.term.ballot, 0, 1.0))
    assert group.leader.term is not None


def proposing(*values: bytes) -> Paxos:
    """Return a leader with proposals in flight for the slots from 2 on."""
    group = quiet()
    hear(group, B, Chosen(1, (X,)))
    for token, value in enumerate(values):
        group.request(Propose(token, value))
    expire(group, Flush())
    assert [slot for slot, _ in in_flight(group)[0]] == list(range(2, 2 + len(values)))
    return group


@pytest.mark.parametrize("slot", [2, 3, 4])
def test_leader_steps_down_when_another_value_was_chosen_for_its_proposal(slot: int) -> None:
    group = proposing(b"a", b"b", b"c")
    hear(group, B, Chosen(slot, (command(b"other"),)))
    assert group.leader.term is None
    assert group.leader.tokens == {}


@pytest.mark.parametrize("slot", [1, 5])
def test_leader_continues_when_a_slot_that_it_has_not_proposed_was_chosen(slot: int) -> None:
    group = proposing(b"a", b"b", b"c")
    hear(group, B, Chosen(slot, (command(b"other"),)))
    assert group.leader.term is not None


def test_leader_continues_when_its_own_value_was_chosen() -> None:
    group = proposing(b"a", b"b", b"c")
    hear(group, B, Chosen(3, (command(b"b"),)))
    assert group.leader.term is not None


@pytest.mark.parametrize("count", [0, 1])
def test_leader_with_proposals_in_flight_steps_down_when_it_installs_a_snapshot(
    count: int,
) -> None:
    group = proposing(*[b"a"] * count)
    hear(group, B, Ahead(9, 10, 0, THREE, 1))
    hear(group, B, Piece(9, 0, b"state", True))
    assert group.applied == 9
    assert (group.leader.term is None) == bool(count)


def test_votes_in_a_late_promise_are_proposed() -> None:
    """Such a value may have been chosen."""
    group = leading()
    late = Promise(ballot(1), 1, 1, 0, (Vote(1, ballot(0, C), X),), ())
    assert accepted_slots(hear(group, C, late)) == [1]


# -- following --


def test_first_beat_of_a_leader_is_stored_and_reported() -> None:
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


def test_vote_is_also_sent_to_a_leader_that_is_not_a_known_member() -> None:
    group = started()
    effects = hear(group, D, Accept(ballot(1, D), 1, (X,), 0))
    assert [to for to, each in sends(effects) if isinstance(each, Accepted)] == [A, C, D]


def test_release_from_another_node_than_the_leader_is_ignored() -> None:
    group = started()
    hear(group, A, Beat(ballot(1), 0, 7.5))
    assert hear(group, C, Release(ballot(1, A), B)) == []
    assert (group.state.following.heard, group.leader.term) == (100.0, None)


def test_promise_reports_no_votes_for_chosen_slots() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (X, Y), 0))
    group.state.progress.certain = 1
    group.now += 10
    (_, said) = sends(hear(group, C, Prepare(ballot(2, C), 1)))[0]
    assert said == Promise(ballot(2, C), 1, 1, 1, (Vote(2, ballot(1), Y),), ())


def test_a_promise_reports_no_vote_below_what_was_asked_for() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (X, Y), 0))
    group.now += 10
    (_, said) = sends(hear(group, C, Prepare(ballot(2, C), 2)))[0]
    assert said == Promise(ballot(2, C), 1, 2, 0, (Vote(2, ballot(1), Y),), ())


# -- elections --


def test_replica_that_suspects_the_leader_canvasses_the_other_members() -> None:
    group = steady(started())
    hear(group, A, Beat(ballot(1), 0, 7.5))
    group.now += SUSPICION
    assert expire(group, Silence()) == [
        Emit(LeaderChanged(NO_NODE), after=0),
        Send(A, Canvass(1), after=0),
        Send(C, Canvass(1), after=0),
        Later(RESEND * 1.5, Silence()),
    ]
    assert expire(group, Silence())[:1] == [Send(A, Canvass(1), after=0)]


def test_early_suspicion_timer_waits_for_the_rest_of_the_time() -> None:
    group = started()
    hear(group, A, Beat(ballot(1), 0, 7.5))
    group.now += SUSPICION - 0.5
    assert expire(group, Silence()) == [Later(0.5, Silence())]


def test_leader_and_non_member_do_not_canvass() -> None:
    group = leading()
    group.now += 100.0
    assert expire(group, Silence()) == []
    outside = started(D)
    outside.now += 100.0
    assert expire(outside, Silence()) == []


def test_non_member_does_not_stand() -> None:
    outside = started(D)
    outside.leader.stand()
    assert outside.drain() == []
    assert outside.leader.term is None


def test_candidate_sends_prepares_after_its_own_promise_is_on_disk() -> None:
    group = steady(started())
    hear(group, A, Beat(ballot(3), 0, 7.5))
    group.now += SUSPICION
    expire(group, Silence())
    effects = hear(group, C, Consent(1))
    assert effects == [
        Append(Promised(ballot(4, B), vouch(0)), 3),
        Send(B, Promise(ballot(4, B), 1, 1, 0, (), ()), after=3),
        Send(A, Prepare(ballot(4, B), 1), after=3),
        Send(C, Prepare(ballot(4, B), 1), after=3),
        Later(RESEND, Unanswered()),
    ]
    assert group.leader.seen == ballot(4, B)
    assert hear(group, A, Consent(1)) == []  # it is already a candidate


def test_successor_that_stands_forgets_the_leader() -> None:
    group = started()
    hear(group, A, Beat(ballot(3), 0, 7.5))
    assert events(hear(group, A, Release(ballot(3), B))) == [LeaderChanged(NO_NODE)]
    assert group.state.following.leader == NO_NODE


def test_consents_do_not_count_once_a_leader_is_heard() -> None:
    group = started()
    expire(group, Silence())
    hear(group, A, Beat(ballot(3), 0, 7.5))
    assert hear(group, C, Consent(1)) == []


def test_consent_of_another_incarnation_or_of_a_non_member_does_not_count() -> None:
    group = started()
    expire(group, Silence())
    assert hear(group, C, Consent(2)) == []
    assert hear(group, D, Consent(1)) == []


def test_promise_for_another_ballot_or_a_later_first_slot_does_not_count() -> None:
    group = started(A)
    group.leader.stand()
    group.drain()
    assert group.leader.term is not None
    assert hear(group, B, Promise(group.leader.term.ballot, 1, 2, 0, (), ())) == []
    assert group.leader.term.promises.members == {}
    assert hear(group, B, Promise(ballot(9, A), 1, 1, 0, (), ())) == []
    assert group.leader.term.promises.members == {}


def test_member_whose_promise_knows_more_slots_is_asked_for_them_at_once() -> None:
    group = started(A)
    group.leader.stand()
    group.drain()
    assert promise(group, B, known=3)[:2] == [
        Send(B, Want(1, 3), after=0),
        Later(RESEND, Behind()),
    ]
    assert (group.state.progress.known, group.state.fetching.stood_at) == (3, 0)


def test_promises_of_a_majority_make_a_leader() -> None:
    group = started(A)
    group.leader.stand()
    group.drain()
    assert promise(group, A) == []
    assert promise(group, B) == [
        Send(B, Beat(ballot(1), 0, 100.0), after=0),
        Send(C, Beat(ballot(1), 0, 100.0), after=0),
        Later(OPTIONS.heartbeat, BeatDue()),
        Emit(LeaderChanged(A), after=0),
    ]
    assert (group.state.following.leader, group.state.following.ballot) == (A, ballot(1))
    assert promise(group, C) == []


def finishing() -> Paxos:
    """Return an elected leader that must first finish slot 1, which another leader began."""
    group = started(A)
    group.leader.stand()
    promise(group, A)
    hear(group, B, Promise(ballot(1), 1, 1, 0, (Vote(1, ballot(0, C), X),), ()))
    assert group.leader.term is not None
    assert (group.leader.term.elected, group.leader.term.acting) == (True, False)
    return group


def test_elected_leader_neither_serves_nor_proposes_until_it_has_finished_old_slots() -> None:
    group = finishing()
    hear(group, B, Heard(ballot(1), 100.0, 1, 0, SUSPICION))
    assert group.leader.lease_ends() > group.now
    assert not group.leads(group.now)
    group.request(HandOver(B))
    group.request(Propose(1, b"mine"))
    assert group.drain() == []
    assert group.leader.term is not None
    assert not group.leader.term.queue
    sync(group)
    effects = hear(group, B, Accepted(ballot(1), 1, 1, 1))
    assert [each for each in effects if isinstance(each, Emit)] == [
        Emit(Decided(1, b"x"), after=0),
        Emit(LeaderChanged(A), after=0),
    ]
    assert group.leads(group.now)


def test_candidate_sends_no_beats_and_has_no_lease() -> None:
    group = started(A)
    group.leader.stand()
    group.drain()
    assert expire(group, BeatDue()) == []
    assert group.leader.lease_ends() == 0.0


def test_leader_steps_down_if_the_slot_of_a_new_command_was_already_chosen() -> None:
    """Only a leader with a higher ballot can have proposed it."""
    for known in (0, 1):
        group = quiet()
        group.state.progress.certain = known
        group.request(Propose(1, b"mine"))
        assert (group.leader.term is None) == bool(known)


@pytest.mark.parametrize(("value", "goes_on"), [(X, True), (Y, False), (None, True)])
def test_leader_finishes_old_proposals_unless_another_value_was_chosen(
    value: Item | None, goes_on: bool
) -> None:
    group = started(A)
    if value is not None:
        hear(group, C, Chosen(2, (value,)))
    group.state.progress.learned[2] = None
    group.leader.stand()
    promise(group, A)
    votes = tuple(Vote(slot, ballot(0, C), X) for slot in (1, 2))
    effects = hear(group, B, Promise(ballot(1), 1, 1, 0, votes, ()))
    assert (group.leader.term is not None) == goes_on
    assert accepted_slots(effects) == ([1, 2] if goes_on else [])


def test_membership_change_gives_the_leader_time_to_be_heard() -> None:
    group = quiet()
    group.now += 10.0
    group.reconfiguration.reconfigured(THREE)
    assert Later(0.0, BeatDue()) in group.drain()
    assert expire(group, BeatDue()) != []
    assert group.leader.term is not None


def test_membership_without_the_leader_gives_no_unlimited_lease() -> None:
    group = quiet()
    assert group.leader.term is not None
    other = Config(2, (Member(B, 1),), 1)
    assert group.leader._lease(group.leader.term, other) == group.leader.term.since


# -- proposing --


def test_proposal_is_sent_before_it_is_on_disk_and_its_vote_after() -> None:
    group = quiet()
    group.request(Propose(7, b"x"))
    assert group.drain() == [
        Send(B, Accept(ballot(1), 1, (X,), 0), after=0),
        Send(C, Accept(ballot(1), 1, (X,), 0), after=0),
        Append(Entry(1, ballot(1), 0, b"x", 0, vouch(1)), 3),
        Send(B, Accepted(ballot(1), 1, 1, 1), after=3),
        Send(C, Accepted(ballot(1), 1, 1, 1), after=3),
        Send(A, Stored(3), after=3),
        Later(RESEND + 1 / SLOWEST_LINK, Unanswered()),
    ]
    sync(group)
    assert hear(group, B, Accepted(ballot(1), 1, 1, 1)) == [Emit(Decided(1, b"x", 7), after=0)]


def test_values_proposed_while_others_are_in_flight_share_an_accept() -> None:
    group = leading()
    for token in range(3):
        group.request(Propose(token, b"%d" % token))
    effects = group.drain()
    assert [each for each in effects if isinstance(each, Later)] == [Later(0.0, Flush())]
    group.timeout(Flush())
    accepts = [each for to, each in sends(group.drain()) if to == B and isinstance(each, Accept)]
    assert accepts == [Accept(ballot(1), 2, (command(b"1"), command(b"2")), 0)]
    assert group.leader.tokens == {1: 0, 2: 1, 3: 2}
    group.request(Propose(3, b"3"))
    assert group.drain() == [Later(0.0, Flush())]


def test_a_replica_that_does_not_lead_proposes_nothing() -> None:
    group = started(A)
    group.request(Propose(1, b"x"))
    assert group.drain() == []
    assert expire(group, Flush()) == []
    group.leader.stand()
    group.drain()
    group.request(Propose(1, b"x"))  # it is only a candidate
    assert group.drain() == []


def in_flight(group: Paxos) -> tuple[list[tuple[int, int]], int]:
    assert group.leader.term is not None
    return list(group.leader.term.in_flight), group.leader.term.in_flight_bytes


def test_values_in_flight_are_counted_until_applied() -> None:
    group = leading()
    group.request(Propose(1, b"abc"))
    group.request(Propose(2, b"de"))
    expire(group, Flush())
    assert in_flight(group) == ([(1, 3), (2, 2)], 5)
    sync(group)
    hear(group, B, Accepted(ballot(1), 1, 1, 1))
    assert in_flight(group) == ([(2, 2)], 2)
    hear(group, B, Accepted(ballot(1), 2, 2, 1))
    assert in_flight(group) == ([], 0)


def accepted_slots(effects: list[Effect], to: NodeId = B) -> list[int]:
    return [
        slot
        for node, each in sends(effects)
        if node == to and isinstance(each, Accept)
        for slot in range(each.slot, each.slot + len(each.items))
    ]


@pytest.mark.parametrize(
    "options",
    [
        GroupOptions(compare_every=0.0, window_slots=3),
        GroupOptions(compare_every=0.0, window_bytes=300),
    ],
)
def test_window_limits_the_values_in_flight(options: GroupOptions) -> None:
    """REP-5: in slots and in bytes."""
    group = leading(options=options)
    for token in range(6):
        group.request(Propose(token, bytes(100)))
    first = group.drain()
    group.timeout(Flush())
    assert accepted_slots(first) + accepted_slots(group.drain()) == [1, 2, 3]
    sync(group)
    assert accepted_slots(hear(group, B, Accepted(ballot(1), 1, 2, 1))) == [4, 5]


def test_accept_takes_items_until_its_byte_limit_is_reached() -> None:
    options = GroupOptions(compare_every=0.0, accept_bytes=200)
    group = leading(options=options)
    for size in (500, 100, 100, 100, 500):
        group.request(Propose(1, bytes(size)))
    first = group.drain()
    group.timeout(Flush())
    accepts = [
        [len(item.data) for item in each.items]
        for node, each in sends([*first, *group.drain()])
        if node == B and isinstance(each, Accept)
    ]
    assert accepts == [[500], [100, 100], [100, 500]]


# -- sending again --


def test_unanswered_accept_is_sent_again_to_members_that_have_not_voted() -> None:
    group = leading()
    group.request(Propose(1, b"x"))
    sync(group)
    assert expire(group, Unanswered()) == [
        Send(C, Prepare(ballot(1), 1), after=3),
        Send(B, Accept(ballot(1), 1, (X,), 0), after=0),
        Send(C, Accept(ballot(1), 1, (X,), 0), after=0),
        Later(RESEND + 1 / SLOWEST_LINK, Unanswered()),
    ]
    five = Config(1, (*THREE.members, Member(D, 1), Member(NodeId("e"), 1)), 5)
    wide = leading(config=five)
    wide.request(Propose(1, b"x"))
    sync(wide)
    hear(wide, B, Accepted(ballot(1), 1, 1, 1))
    again = [to for to, each in sends(expire(wide, Unanswered())) if isinstance(each, Accept)]
    assert again == [C, D, NodeId("e")]


def test_accept_is_not_sent_again_while_slots_are_being_applied() -> None:
    group = leading()
    promise(group, C)
    group.request(Propose(1, b"x"))
    group.request(Propose(2, b"y"))
    group.timeout(Flush())
    sync(group)
    hear(group, B, Accepted(ballot(1), 1, 1, 1))
    assert expire(group, Unanswered()) == [Later(RESEND + 1 / SLOWEST_LINK, Unanswered())]
    assert accepted_slots(expire(group, Unanswered())) == [2]


def test_leader_with_nothing_in_flight_sets_no_timer() -> None:
    group = leading()
    promise(group, C)
    group.request(Propose(1, b"x"))
    sync(group)
    hear(group, B, Accepted(ballot(1), 1, 1, 1))
    assert expire(group, Unanswered()) == []
    group.request(Propose(1, b"y"))
    assert Later(RESEND + 1 / SLOWEST_LINK, Unanswered()) in group.drain()


def test_only_one_timer_waits_for_answers() -> None:
    group = quiet()
    group.request(Propose(1, b"x"))
    group.request(Propose(2, b"y"))
    group.timeout(Flush())
    waits = [each for each in group.drain() if isinstance(each, Later)]
    assert [each.timer for each in waits].count(Unanswered()) == 1


def test_follower_does_not_send_again() -> None:
    assert expire(started(), Unanswered()) == []


def test_votes_with_a_lower_ballot_do_not_answer_a_proposal() -> None:
    group = quiet()
    group.request(Propose(1, b"x"))
    expire(group, Unanswered())
    assert [to for to, _ in sends(expire(group, Unanswered()))] == [B, C]
    hear(group, B, Accepted(ballot(0, C), 1, 1, 1))
    assert [to for to, _ in sends(expire(group, Unanswered()))] == [B, C]
    hear(group, B, Accepted(ballot(1), 1, 1, 1))
    assert [to for to, _ in sends(expire(group, Unanswered()))] == [C]


def test_only_proposed_slots_are_sent_again() -> None:
    """A later slot may hold a vote for a value of an earlier leader."""
    group = quiet()
    group.request(Propose(1, b"x"))
    group.state.values.items[2] = Y
    expire(group, Unanswered())
    assert accepted_slots(expire(group, Unanswered())) == [1]


@pytest.mark.parametrize(("size", "slots"), [(200, [1, 2]), (201, [1, 2, 3])])
def test_resent_accept_starts_at_the_first_open_slot_and_fits_its_byte_limit(
    size: int, slots: list[int]
) -> None:
    options = GroupOptions(compare_every=0.0, accept_bytes=size)
    group = leading(options=options)
    promise(group, C)
    for _ in range(5):
        group.request(Propose(1, bytes(100)))
    group.timeout(Flush())
    sync(group)
    group.drain()
    assert accepted_slots(expire(group, Unanswered()), C) == slots


def test_resent_accept_ends_before_a_value_that_cannot_be_read() -> None:
    group = proposing(b"a", b"b", b"c")
    sync(group)
    group.state.values.items.clear()
    group.state.values.index.cut(3)
    group._records.read = lambda number: Entry(2, ballot(1), 0, b"a", 0, vouch(2))
    group.timeout(Unanswered())
    group.drain()
    assert accepted_slots(expire(group, Unanswered())) == [2]


# -- alone --

ALONE = Config(1, (Member(A, 1),), 1)


def test_lone_replica_leads_with_a_ballot_above_its_promises() -> None:
    group = restored(Promised(ballot(5), vouch(0)), me=A, config=ALONE)
    group.start()
    assert group.state.votes.promised == group.leader.seen == ballot(6)
    assert group.leads(0.0)


def test_lone_replica_refuses_to_start_without_a_slot_of_its_log() -> None:
    log = [Entry(slot, ballot(1), 0, b"x", 0, vouch(slot)) for slot in (1, 3)]
    with pytest.raises(Crippled, match="replica a: slot 2 is not in its log"):
        restored(*log, me=A, config=ALONE).start()


@pytest.mark.parametrize(("lost", "stands"), [((1, 1), True), ((1, 2), False), ((2, 3), False)])
def test_only_member_stands_only_if_no_lost_vote_can_matter(
    lost: tuple[int, int], stands: bool
) -> None:
    group = started(A, ALONE)
    group.leader.term = None
    group.state.progress.applied, group.state.votes.lost = 1, [lost]
    expire(group, Silence())
    assert (group.leader.term is not None) == stands


# -- leading --


def test_heartbeat_sends_beats_and_schedules_the_next_one() -> None:
    group = leading()
    group.now += 1.0
    assert expire(group, BeatDue()) == [
        Send(B, Beat(ballot(1), 0, 101.0), after=0),
        Send(C, Beat(ballot(1), 0, 101.0), after=0),
        Later(OPTIONS.heartbeat, BeatDue()),
    ]
    assert group.state.following.heard == 101.0


def test_leader_without_answers_of_a_majority_steps_down() -> None:
    group = steady(leading())
    assert group.leader.term is not None
    group.now += SUSPICION
    assert expire(group, BeatDue()) != []
    group.now += 0.01
    assert expire(group, BeatDue()) == [
        Emit(LeaderChanged(NO_NODE), after=0),
        Later(PATIENCE, Silence()),
    ]
    assert expire(group, BeatDue()) == []


def test_lease_needs_a_majority_and_counts_from_when_the_beat_was_sent() -> None:
    group = leading()
    expire(group, BeatDue())
    lease = OPTIONS.lease(SUSPICION)
    assert not group.leads(group.now)
    hear(group, B, Heard(ballot(1), 99.0, 1, 0, SUSPICION))
    assert group.leader.lease_ends() == 99.0 + lease
    hear(group, C, Heard(ballot(1), 100.0, 1, 0, SUSPICION))
    assert group.leader.lease_ends() == 100.0 + lease
    hear(group, C, Heard(ballot(1), 98.0, 1, 0, SUSPICION))  # an older answer changes nothing
    assert group.leader.lease_ends() == 100.0 + lease
    assert group.leads(99.9 + lease)
    assert not group.leads(100.0 + lease)


def test_answers_for_another_ballot_or_incarnation_give_no_lease() -> None:
    group = leading()
    hear(group, B, Heard(ballot(2), 100.0, 1, 0, SUSPICION))
    hear(group, B, Heard(ballot(1), 100.0, 2, 0, SUSPICION))  # another incarnation
    assert not group.leads(group.now)
    assert started().leader.lease_ends() == 0.0


def test_a_shorter_promise_gives_a_shorter_lease() -> None:
    group = leading()
    expire(group, BeatDue())
    hear(group, B, Heard(ballot(1), 100.0, 1, 0, SUSPICION / 2))
    assert group.leader.lease_ends() == 100.0 + OPTIONS.lease(SUSPICION / 2)


def test_a_lone_leader_needs_no_answers() -> None:
    group = started(A, Config(1, (Member(A, 1),), 1))
    assert group.leads(1e9)


def test_leader_that_hands_over_releases_all_members() -> None:
    group = steady(leading())
    group.request(HandOver(C))
    assert group.drain() == [
        Emit(LeaderChanged(NO_NODE), after=0),
        Later(PATIENCE, Silence()),
        Send(B, Release(ballot(1), C), after=0),
        Send(C, Release(ballot(1), C), after=0),
    ]
    assert group.state.following.heard == group.now - SUSPICION


@pytest.mark.parametrize("successor", [A, D])
def test_leader_hands_over_only_to_another_member(successor: NodeId) -> None:
    group = leading()
    group.request(HandOver(successor))
    assert group.drain() == []
    follower = started()
    follower.request(HandOver(C))
    assert follower.drain() == []
