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
    awake,
    ballot,
    command,
    events,
    hear,
    leading,
    promise,
    records,
    restored,
    sends,
    sync,
    vouch,
)

NO_NODE = NodeId("")
SUSPICION, RESEND = OPTIONS.suspicion, OPTIONS.resend
PATIENCE = SUSPICION * 1.125
SLOWEST_LINK = 8 * 1024 * 1024  # bytes a second
X, Y = command(b"x"), command(b"y")


class Half(Random):
    """Dice that always show the same."""

    def random(self) -> float:
        return 0.5


def steady(group: Paxos) -> Paxos:
    group.rng = Half()
    return group


def after(group: Paxos, timer: Value) -> list[Effect]:
    group.timeout(timer)  # type: ignore[arg-type]
    return group.drain()


def quiet() -> Paxos:
    """A leader that all have promised, with no timer set but the next heartbeat."""
    group = leading()
    promise(group, C)
    assert after(group, Unanswered()) == []
    return group


# -- what waits for the disk --

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
def test_promises_and_votes_wait_for_the_disk_and_nothing_else_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A message that tells of nothing stored must not be as slow as a disk."""
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
    seen.pop("Heard")  # waits for the promise that it follows from
    assert {name for name, waits in seen.items() if waits == {0}} <= AT_ONCE
    assert {name for name, waits in seen.items() if waits == {-1}} <= AFTER_ALL_RECORDS
    assert set(seen) <= AT_ONCE | AFTER_ALL_RECORDS
    assert len(seen) > 20


def test_a_vote_that_is_recalled_waits_for_nothing() -> None:
    assert hear(awake(), A, Recall(1)) == [Send(A, Recalled(1, 1, None), after=0)]


# -- a leader that hears of a higher ballot --


def test_a_leader_promises_a_higher_candidate_and_leads_no_more() -> None:
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


def test_a_leader_that_hears_of_a_vote_for_another_leads_no_more() -> None:
    group = steady(leading())
    assert hear(group, B, Accepted(ballot(9, C), 1, 1, 1)) == [
        Emit(LeaderChanged(NO_NODE), after=0),
        Later(PATIENCE, Silence()),
    ]
    assert group.leader.term is None
    assert group.leader.seen == ballot(9, C)


def test_a_leader_goes_on_when_it_hears_of_a_vote_for_an_earlier_one() -> None:
    group = leading()
    assert hear(group, B, Accepted(ballot(0, C), 1, 1, 1)) == []
    assert group.leader.term is not None


def test_a_rejected_leader_forgets_its_own_lease_and_waits_before_it_tries_again() -> None:
    group = steady(leading())
    assert hear(group, B, Reject(ballot(9, C))) == [
        Emit(LeaderChanged(NO_NODE), after=0),
        Later(PATIENCE, Silence()),
        Later(RESEND * 2.5, Silence()),
    ]
    assert group.state.following.heard == group.now - SUSPICION
    group.leader.stand()
    assert records(group.drain()) == [Promised(ballot(10), vouch(0))]


def test_a_candidate_that_is_rejected_keeps_the_lease_of_another_leader() -> None:
    group = awake(A)
    hear(group, C, Beat(ballot(3, C), 0, 1.0))
    heard = group.state.following.heard
    group.now += 2 * SUSPICION
    group.leader.stand()
    hear(group, B, Reject(ballot(9, C)))
    assert (group.leader.term, group.state.following.heard) == (None, heard)


@pytest.mark.parametrize("round", [0, 1])
def test_a_rejection_by_no_higher_ballot_is_ignored(round: int) -> None:
    group = leading()
    assert group.leader.term is not None
    assert hear(group, B, Reject(ballot(round))) == []
    assert group.leader.term is not None


def test_a_rejection_is_remembered_by_a_replica_that_does_not_stand() -> None:
    group = awake(A)
    assert hear(group, B, Reject(ballot(9, C))) == []
    assert hear(group, B, Reject(ballot(7, C))) == []
    group.leader.stand()
    assert records(group.drain()) == [Promised(ballot(10), vouch(0))]


def test_a_leader_that_follows_a_higher_ballot_says_so_once() -> None:
    group = leading()
    assert events(hear(group, C, Beat(ballot(9, C), 0, 1.0))) == [
        LeaderChanged(NO_NODE),
        LeaderChanged(C),
    ]
    assert events(hear(group, C, Beat(ballot(9, C), 0, 2.0))) == []
    assert group.state.following.ballot == ballot(9, C)


def test_a_candidate_that_hears_its_own_ballot_used_by_itself_goes_on() -> None:
    """An old Accept of the same reign is no reason to step down."""
    group = leading()
    assert group.leader.term is not None
    hear(group, A, Beat(group.leader.term.ballot, 0, 1.0))
    assert group.leader.term is not None


def proposing(*values: bytes) -> Paxos:
    """A leader whose proposals for the slots from 2 on are open."""
    group = quiet()
    hear(group, B, Chosen(1, (X,)))
    for token, value in enumerate(values):
        group.request(Propose(token, value))
    after(group, Flush())
    assert [slot for slot, _ in flying(group)[0]] == list(range(2, 2 + len(values)))
    return group


@pytest.mark.parametrize("slot", [2, 3, 4])
def test_a_leader_that_hears_of_another_value_for_its_proposal_leads_no_more(slot: int) -> None:
    group = proposing(b"a", b"b", b"c")
    hear(group, B, Chosen(slot, (command(b"other"),)))
    assert group.leader.term is None
    assert group.leader.tokens == {}


@pytest.mark.parametrize("slot", [1, 5])
def test_a_leader_goes_on_when_it_hears_of_slots_that_it_has_not_proposed(slot: int) -> None:
    group = proposing(b"a", b"b", b"c")
    hear(group, B, Chosen(slot, (command(b"other"),)))
    assert group.leader.term is not None


def test_a_leader_goes_on_when_it_hears_that_its_own_value_is_chosen() -> None:
    group = proposing(b"a", b"b", b"c")
    hear(group, B, Chosen(3, (command(b"b"),)))
    assert group.leader.term is not None


@pytest.mark.parametrize("open_ones", [0, 1])
def test_a_leader_with_open_proposals_that_is_overtaken_by_a_state_leads_no_more(
    open_ones: int,
) -> None:
    group = proposing(*[b"a"] * open_ones)
    hear(group, B, Ahead(9, 10, 0, THREE, 1))
    hear(group, B, Piece(9, 0, b"state", True))
    assert group.applied == 9
    assert (group.leader.term is None) == bool(open_ones)


def test_a_late_promise_that_reports_more_has_it_proposed() -> None:
    """Two others have voted for it; it may be chosen as soon as a third one has."""
    group = leading()
    late = Promise(ballot(1), 1, 1, 0, (Vote(1, ballot(0, C), X),), ())
    assert accepted_slots(hear(group, C, late)) == [1]


# -- following --


def test_the_first_word_of_a_leader_stores_whom_it_was_and_tells_the_node() -> None:
    group = steady(awake())
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


def test_an_outsider_keeps_to_the_first_group_that_it_learns_from() -> None:
    """REP-5: or it would mix the logs of two groups."""
    group = awake(D)
    hear(group, A, Beat(ballot(1), 0, 7.5, 77))
    group.state.membership.adopted = 77
    assert group.state.membership.group == 77
    hear(group, A, Beat(ballot(1), 0, 8.5, 0))
    assert group.state.membership.group == 77


def test_a_vote_of_a_higher_ballot_is_a_promise_even_if_nothing_is_stored() -> None:
    """All of it lies beyond what the replica looks ahead, and still nobody below may come."""
    group = awake()
    far = 4 * OPTIONS.window_slots + 1
    effects = hear(group, A, Accept(ballot(4), far, (X,), 0))
    assert records(effects) == [Promised(ballot(4), vouch(0))]
    assert group.state.votes.promised == ballot(4)
    assert sends(hear(group, C, Prepare(ballot(3, C), 1))) == [(C, Reject(ballot(4)))]


def test_a_vote_tells_the_leader_too_whose_seat_is_not_known_here() -> None:
    group = awake()
    effects = hear(group, D, Accept(ballot(1, D), 1, (X,), 0))
    assert [to for to, each in sends(effects) if isinstance(each, Accepted)] == [A, C, D]


def test_a_release_by_another_than_its_leader_frees_nobody() -> None:
    group = awake()
    hear(group, A, Beat(ballot(1), 0, 7.5))
    assert hear(group, C, Release(ballot(1, A), B)) == []
    assert (group.state.following.heard, group.leader.term) == (100.0, None)


def test_a_promise_reports_no_vote_for_what_is_known_to_be_chosen() -> None:
    group = awake()
    hear(group, A, Accept(ballot(1), 1, (X, Y), 0))
    group.state.progress.certain = 1
    group.now += 10
    (_, said) = sends(hear(group, C, Prepare(ballot(2, C), 1)))[0]
    assert said == Promise(ballot(2, C), 1, 1, 1, (Vote(2, ballot(1), Y),), ())


def test_a_promise_reports_no_vote_below_what_was_asked_for() -> None:
    group = awake()
    hear(group, A, Accept(ballot(1), 1, (X, Y), 0))
    group.now += 10
    (_, said) = sends(hear(group, C, Prepare(ballot(2, C), 2)))[0]
    assert said == Promise(ballot(2, C), 1, 2, 0, (Vote(2, ballot(1), Y),), ())


# -- standing --


def test_a_replica_that_suspects_the_leader_asks_the_others_and_waits_a_little() -> None:
    group = steady(awake())
    hear(group, A, Beat(ballot(1), 0, 7.5))
    group.now += SUSPICION
    assert after(group, Silence()) == [
        Emit(LeaderChanged(NO_NODE), after=0),
        Send(A, Canvass(1), after=0),
        Send(C, Canvass(1), after=0),
        Later(RESEND * 1.5, Silence()),
    ]
    assert after(group, Silence())[:1] == [Send(A, Canvass(1), after=0)]


def test_a_suspicion_that_comes_too_early_waits_for_the_rest() -> None:
    group = awake()
    hear(group, A, Beat(ballot(1), 0, 7.5))
    group.now += SUSPICION - 0.5
    assert after(group, Silence()) == [Later(0.5, Silence())]


def test_a_leader_and_an_outsider_suspect_nobody() -> None:
    group = leading()
    group.now += 100.0
    assert after(group, Silence()) == []
    outside = awake(D)
    outside.now += 100.0
    assert after(outside, Silence()) == []


def test_an_outsider_does_not_stand() -> None:
    outside = awake(D)
    outside.leader.stand()
    assert outside.drain() == []
    assert outside.leader.term is None


def test_a_candidate_stands_with_its_promise_on_disk_before_anybody_hears() -> None:
    group = steady(awake())
    hear(group, A, Beat(ballot(3), 0, 7.5))
    group.now += SUSPICION
    after(group, Silence())
    effects = hear(group, C, Consent(1))
    assert effects == [
        Append(Promised(ballot(4, B), vouch(0)), 3),
        Send(B, Promise(ballot(4, B), 1, 1, 0, (), ()), after=3),
        Send(A, Prepare(ballot(4, B), 1), after=3),
        Send(C, Prepare(ballot(4, B), 1), after=3),
        Later(RESEND, Unanswered()),
    ]
    assert group.leader.seen == ballot(4, B)
    assert hear(group, A, Consent(1)) == []  # it stands already


def test_an_heir_that_stands_forgets_the_leader() -> None:
    group = awake()
    hear(group, A, Beat(ballot(3), 0, 7.5))
    assert events(hear(group, A, Release(ballot(3), B))) == [LeaderChanged(NO_NODE)]
    assert group.state.following.leader == NO_NODE


def test_consents_do_not_count_once_there_is_a_leader() -> None:
    group = awake()
    after(group, Silence())
    hear(group, A, Beat(ballot(3), 0, 7.5))
    assert hear(group, C, Consent(1)) == []


def test_a_consent_of_another_life_does_not_count() -> None:
    group = awake()
    after(group, Silence())
    assert hear(group, C, Consent(2)) == []
    assert hear(group, D, Consent(1)) == []


def test_a_promise_to_an_earlier_life_that_asked_for_less_does_not_count() -> None:
    group = awake(A)
    group.leader.stand()
    group.drain()
    assert group.leader.term is not None
    assert hear(group, B, Promise(group.leader.term.ballot, 1, 2, 0, (), ())) == []
    assert group.leader.term.promises.members == {}
    assert hear(group, B, Promise(ballot(9, A), 1, 1, 0, (), ())) == []
    assert group.leader.term.promises.members == {}


def test_a_promise_that_knows_more_is_asked_for_it_at_once() -> None:
    group = awake(A)
    group.leader.stand()
    group.drain()
    assert promise(group, B, known=3)[:2] == [
        Send(B, Want(1, 3), after=0),
        Later(RESEND, Behind()),
    ]
    assert (group.state.progress.known, group.state.fetching.stood_at) == (3, 0)


def test_a_leader_takes_office_with_the_promises_of_a_majority() -> None:
    group = awake(A)
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
    """A leader by vote that must first finish slot 1, which another one has begun."""
    group = awake(A)
    group.leader.stand()
    promise(group, A)
    hear(group, B, Promise(ballot(1), 1, 1, 0, (Vote(1, ballot(0, C), X),), ()))
    assert group.leader.term is not None
    assert (group.leader.term.elected, group.leader.term.acting) == (True, False)
    return group


def test_a_leader_that_finishes_what_others_began_answers_and_promises_nothing_yet() -> None:
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


def test_a_candidate_beats_for_nobody_and_has_no_lease() -> None:
    group = awake(A)
    group.leader.stand()
    group.drain()
    assert after(group, BeatDue()) == []
    assert group.leader.lease_ends() == 0.0


def test_a_new_command_for_a_slot_that_is_known_to_be_chosen_ends_the_reign() -> None:
    """Only a leader with a higher ballot can have had it chosen."""
    for known in (0, 1):
        group = quiet()
        group.state.progress.certain = known
        group.request(Propose(1, b"mine"))
        assert (group.leader.term is None) == bool(known)


@pytest.mark.parametrize(("value", "goes_on"), [(X, True), (Y, False), (None, True)])
def test_what_others_began_is_finished_unless_something_else_was_chosen(
    value: Item | None, goes_on: bool
) -> None:
    group = awake(A)
    if value is not None:
        hear(group, C, Chosen(2, (value,)))
    group.state.progress.learned[2] = None
    group.leader.stand()
    promise(group, A)
    votes = tuple(Vote(slot, ballot(0, C), X) for slot in (1, 2))
    effects = hear(group, B, Promise(ballot(1), 1, 1, 0, votes, ()))
    assert (group.leader.term is not None) == goes_on
    assert accepted_slots(effects) == ([1, 2] if goes_on else [])


def test_a_change_of_members_gives_a_leader_time_to_be_heard() -> None:
    group = quiet()
    group.now += 10.0
    group.reconfiguration.reconfigured(THREE)
    assert Later(0.0, BeatDue()) in group.drain()
    assert after(group, BeatDue()) != []
    assert group.leader.term is not None


def test_a_membership_of_somebody_else_alone_gives_no_lease_for_ever() -> None:
    group = quiet()
    assert group.leader.term is not None
    other = Config(2, (Member(B, 1),), 1)
    assert group.leader._lease(group.leader.term, other) == group.leader.term.since


# -- proposing --


def test_a_proposal_goes_to_the_others_before_it_is_on_disk_and_is_voted_for_after() -> None:
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


def test_what_is_proposed_while_others_fly_shares_one_accept() -> None:
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
    group = awake(A)
    group.request(Propose(1, b"x"))
    assert group.drain() == []
    assert after(group, Flush()) == []
    group.leader.stand()
    group.drain()
    group.request(Propose(1, b"x"))  # it stands, and does not lead yet
    assert group.drain() == []


def flying(group: Paxos) -> tuple[list[tuple[int, int]], int]:
    assert group.leader.term is not None
    return list(group.leader.term.in_flight), group.leader.term.in_flight_bytes


def test_what_flies_is_counted_until_it_is_applied() -> None:
    group = leading()
    group.request(Propose(1, b"abc"))
    group.request(Propose(2, b"de"))
    after(group, Flush())
    assert flying(group) == ([(1, 3), (2, 2)], 5)
    sync(group)
    hear(group, B, Accepted(ballot(1), 1, 1, 1))
    assert flying(group) == ([(2, 2)], 2)
    hear(group, B, Accepted(ballot(1), 2, 2, 1))
    assert flying(group) == ([], 0)


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
def test_no_more_flies_than_the_window_takes(options: GroupOptions) -> None:
    """REP-5: in slots and in bytes."""
    group = leading(options=options)
    for token in range(6):
        group.request(Propose(token, bytes(100)))
    first = group.drain()
    group.timeout(Flush())
    assert accepted_slots(first) + accepted_slots(group.drain()) == [1, 2, 3]
    sync(group)
    assert accepted_slots(hear(group, B, Accepted(ballot(1), 1, 2, 1))) == [4, 5]


def test_one_accept_carries_no_more_bytes_than_it_may_unless_one_item_is_larger() -> None:
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


# -- saying it again --


def test_what_is_not_answered_is_sent_again_to_those_who_have_not_voted() -> None:
    group = leading()
    group.request(Propose(1, b"x"))
    sync(group)
    assert after(group, Unanswered()) == [
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
    again = [to for to, each in sends(after(wide, Unanswered())) if isinstance(each, Accept)]
    assert again == [C, D, NodeId("e")]


def test_what_came_on_meanwhile_is_not_sent_again() -> None:
    group = leading()
    promise(group, C)
    group.request(Propose(1, b"x"))
    group.request(Propose(2, b"y"))
    group.timeout(Flush())
    sync(group)
    hear(group, B, Accepted(ballot(1), 1, 1, 1))
    assert after(group, Unanswered()) == [Later(RESEND + 1 / SLOWEST_LINK, Unanswered())]
    assert accepted_slots(after(group, Unanswered())) == [2]


def test_a_leader_with_nothing_open_waits_for_nothing() -> None:
    group = leading()
    promise(group, C)
    group.request(Propose(1, b"x"))
    sync(group)
    hear(group, B, Accepted(ballot(1), 1, 1, 1))
    assert after(group, Unanswered()) == []
    group.request(Propose(1, b"y"))
    assert Later(RESEND + 1 / SLOWEST_LINK, Unanswered()) in group.drain()


def test_only_one_timer_waits_for_answers() -> None:
    group = quiet()
    group.request(Propose(1, b"x"))
    group.request(Propose(2, b"y"))
    group.timeout(Flush())
    waits = [each for each in group.drain() if isinstance(each, Later)]
    assert [each.timer for each in waits].count(Unanswered()) == 1


def test_nobody_waits_for_answers_who_leads_no_more() -> None:
    assert after(awake(), Unanswered()) == []


def test_votes_for_an_earlier_ballot_are_no_answer_to_a_proposal() -> None:
    group = quiet()
    group.request(Propose(1, b"x"))
    after(group, Unanswered())
    assert [to for to, _ in sends(after(group, Unanswered()))] == [B, C]
    hear(group, B, Accepted(ballot(0, C), 1, 1, 1))
    assert [to for to, _ in sends(after(group, Unanswered()))] == [B, C]
    hear(group, B, Accepted(ballot(1), 1, 1, 1))
    assert [to for to, _ in sends(after(group, Unanswered()))] == [C]


def test_only_what_was_proposed_is_sent_again() -> None:
    """A slot behind it may hold a vote for something that an earlier leader has proposed."""
    group = quiet()
    group.request(Propose(1, b"x"))
    group.state.values.items[2] = Y
    after(group, Unanswered())
    assert accepted_slots(after(group, Unanswered())) == [1]


@pytest.mark.parametrize(("size", "slots"), [(200, [1, 2]), (201, [1, 2, 3])])
def test_an_accept_is_sent_again_from_the_first_open_slot_in_pieces_that_fit(
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
    assert accepted_slots(after(group, Unanswered()), C) == slots


def test_what_cannot_be_read_ends_what_is_sent_again() -> None:
    group = proposing(b"a", b"b", b"c")
    sync(group)
    group.state.values.items.clear()
    group.state.values.index.cut(3)
    group._records.read = lambda number: Entry(2, ballot(1), 0, b"a", 0, vouch(2))
    group.timeout(Unanswered())
    group.drain()
    assert accepted_slots(after(group, Unanswered())) == [2]


# -- alone --

ALONE = Config(1, (Member(A, 1),), 1)


def test_a_lone_replica_leads_with_a_ballot_above_all_it_has_promised() -> None:
    group = restored(Promised(ballot(5), vouch(0)), me=A, config=ALONE)
    group.start()
    assert group.state.votes.promised == group.leader.seen == ballot(6)
    assert group.leads(0.0)


def test_a_lone_replica_that_lacks_a_slot_of_its_log_says_so() -> None:
    log = [Entry(slot, ballot(1), 0, b"x", 0, vouch(slot)) for slot in (1, 3)]
    with pytest.raises(Crippled, match="replica a: slot 2 is not in its log"):
        restored(*log, me=A, config=ALONE).start()


@pytest.mark.parametrize(("lost", "stands"), [((1, 1), True), ((1, 2), False), ((2, 3), False)])
def test_the_last_voter_stands_only_if_nothing_open_is_lost(
    lost: tuple[int, int], stands: bool
) -> None:
    group = awake(A, ALONE)
    group.leader.term = None
    group.state.progress.applied, group.state.votes.lost = 1, [lost]
    after(group, Silence())
    assert (group.leader.term is not None) == stands


# -- leading --


def test_a_heartbeat_says_what_is_chosen_and_asks_for_the_next() -> None:
    group = leading()
    group.now += 1.0
    assert after(group, BeatDue()) == [
        Send(B, Beat(ballot(1), 0, 101.0), after=0),
        Send(C, Beat(ballot(1), 0, 101.0), after=0),
        Later(OPTIONS.heartbeat, BeatDue()),
    ]
    assert group.state.following.heard == 101.0


def test_a_leader_that_no_majority_answers_leads_no_more() -> None:
    group = steady(leading())
    assert group.leader.term is not None
    group.now += SUSPICION
    assert after(group, BeatDue()) != []
    group.now += 0.01
    assert after(group, BeatDue()) == [
        Emit(LeaderChanged(NO_NODE), after=0),
        Later(PATIENCE, Silence()),
    ]
    assert after(group, BeatDue()) == []


def test_the_lease_is_that_of_a_majority_and_counts_from_when_the_beat_was_sent() -> None:
    group = leading()
    after(group, BeatDue())
    lease = OPTIONS.lease(SUSPICION)
    assert not group.leads(group.now)
    hear(group, B, Heard(ballot(1), 99.0, 1, 0, SUSPICION))
    assert group.leader.lease_ends() == 99.0 + lease
    hear(group, C, Heard(ballot(1), 100.0, 1, 0, SUSPICION))
    assert group.leader.lease_ends() == 100.0 + lease
    hear(group, C, Heard(ballot(1), 98.0, 1, 0, SUSPICION))  # an older answer takes nothing back
    assert group.leader.lease_ends() == 100.0 + lease
    assert group.leads(99.9 + lease)
    assert not group.leads(100.0 + lease)


def test_answers_to_another_ballot_give_no_lease() -> None:
    group = leading()
    hear(group, B, Heard(ballot(2), 100.0, 1, 0, SUSPICION))
    hear(group, B, Heard(ballot(1), 100.0, 2, 0, SUSPICION))  # another life has promised nothing
    assert not group.leads(group.now)
    assert awake().leader.lease_ends() == 0.0


def test_a_shorter_promise_gives_a_shorter_lease() -> None:
    group = leading()
    after(group, BeatDue())
    hear(group, B, Heard(ballot(1), 100.0, 1, 0, SUSPICION / 2))
    assert group.leader.lease_ends() == 100.0 + OPTIONS.lease(SUSPICION / 2)


def test_a_lone_leader_needs_no_answers() -> None:
    group = awake(A, Config(1, (Member(A, 1),), 1))
    assert group.leads(1e9)


def test_a_leader_that_hands_over_tells_all_and_waits_for_no_lease() -> None:
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
def test_a_leader_hands_over_to_another_member_only(successor: NodeId) -> None:
    group = leading()
    group.request(HandOver(successor))
    assert group.drain() == []
    follower = awake()
    follower.request(HandOver(C))
    assert follower.drain() == []
