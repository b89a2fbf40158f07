"""REP-1 REP-5: canvasses, ballots, and the promises that a candidate needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncecast.errors import Crippled
from oncecast.kernel.protocol import Append, Emit, Later, NodeId, Send
from oncecast.replication.events import Decided, HandOver, LeaderChanged, Propose
from oncecast.replication.messages import (
    CONFIG,
    NOOP,
    Accept,
    Accepted,
    Beat,
    BeatDue,
    Behind,
    Canvass,
    Chosen,
    Consent,
    Entry,
    Heard,
    Item,
    Prepare,
    Promise,
    Promised,
    Reject,
    Release,
    Silence,
    Unanswered,
    Vote,
    Want,
)
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Config, Member, encode_config
from tests.replication.replicas import (
    OPTIONS,
    THREE,
    A,
    B,
    C,
    D,
    accepted_slots,
    ballot,
    command,
    events,
    expire,
    hear,
    leading,
    promise,
    records,
    restored,
    sends,
    started,
    steady,
    sync,
    vouch,
)

NO_NODE = NodeId("")
SUSPICION, RESEND = OPTIONS.suspicion, OPTIONS.resend
X, Y = command(b"x"), command(b"y")
ALONE = Config(1, (Member(A, 1),), 1)


def candidate(*votes: Vote, lost: tuple[tuple[int, int], ...] = (), **options: int) -> Paxos:
    """Return candidate A with promises from itself and from B, which reports these votes."""
    group = started(A, options=replace(OPTIONS, **options))
    group.leader.stand()
    promise(group, A)
    group.drain()
    group.receive(B, Promise(ballot(1), 1, 1, 0, votes, lost))
    return group


def finishing() -> Paxos:
    """Return an elected leader that must first finish slot 1, which another leader began."""
    group = started(A)
    group.leader.stand()
    promise(group, A)
    hear(group, B, Promise(ballot(1), 1, 1, 0, (Vote(1, ballot(0, C), X),), ()))
    assert group.leader.term is not None
    assert (group.leader.term.elected, group.leader.term.acting) == (True, False)
    return group


# -- canvassing and becoming a candidate --


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


def test_early_suspicion_timer_is_reset_to_the_remaining_time() -> None:
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


def test_non_member_does_not_become_a_candidate() -> None:
    outside = started(D)
    outside.leader.stand()
    assert outside.drain() == []
    assert outside.leader.term is None


def test_successor_reports_no_leader_when_it_becomes_a_candidate() -> None:
    group = started()
    hear(group, A, Beat(ballot(3), 0, 7.5))
    assert events(hear(group, A, Release(ballot(3), B))) == [LeaderChanged(NO_NODE)]
    assert group.state.following.leader == NO_NODE


def test_consents_are_discarded_when_a_leader_sends_a_message() -> None:
    group = started()
    expire(group, Silence())
    hear(group, A, Beat(ballot(3), 0, 7.5))
    assert hear(group, C, Consent(1)) == []


def test_consent_from_another_incarnation_or_a_non_member_does_not_count() -> None:
    group = started()
    expire(group, Silence())
    assert hear(group, C, Consent(2)) == []
    assert hear(group, D, Consent(1)) == []


def test_candidate_sends_no_beats_and_has_no_lease() -> None:
    group = started(A)
    group.leader.stand()
    group.drain()
    assert expire(group, BeatDue()) == []
    assert group.leader.lease_ends() == 0.0


def test_replica_without_a_leader_canvasses_before_it_becomes_a_candidate() -> None:
    """REP-5: the replica itself may be cut off, and a higher ballot would depose a working
    leader."""
    group = started(A)
    group.timeout(Silence())
    effects = group.drain()
    assert effects[:2] == [Send(B, Canvass(1), after=0), Send(C, Canvass(1), after=0)]
    (again,) = effects[2:]
    assert isinstance(again, Later)
    assert again.timer == Silence()
    assert group.leader.term is None


def test_replica_names_no_leader_while_it_suspects_its_leader() -> None:
    """The replica must not redirect clients to a leader that is gone."""
    group = started(B)
    assert LeaderChanged(A) in events(hear(group, A, Beat(ballot(1), 0, 7.5)))
    group.now += 2 * group.options.suspicion
    group.timeout(Silence())
    assert events(group.drain()) == [LeaderChanged(NodeId(""))]
    assert LeaderChanged(A) in events(hear(group, A, Beat(ballot(1), 0, 9.5)))


def test_removed_candidate_sends_no_release() -> None:
    group = started(A)
    group.leader.stand()
    group.drain()
    effects = hear(group, B, Chosen(1, (Item(CONFIG, encode_config(THREE.removed(A))),)))
    assert group.leader.term is None
    assert not [message for _, message in sends(effects) if isinstance(message, Release)]


def test_last_member_becomes_a_candidate_without_a_canvass() -> None:
    """REP-2: the leader has removed itself, and one member is left."""
    two = Config(1, (Member(A, 1), Member(B, 1)), 3)
    group = started(B, two)
    hear(group, A, Chosen(1, (Item(CONFIG, encode_config(two.removed(A))),)))
    group.timeout(Silence())
    group.drain()
    assert events(promise(group, B)) == [LeaderChanged(B)]


def test_follower_does_not_become_a_candidate_while_its_leader_holds_a_lease() -> None:
    group = started(A)
    hear(group, B, Beat(ballot(1, B), 0, 1.0))
    group.now += group.options.suspicion / 2
    group.timeout(Silence())
    assert group.leader.term is None


# -- promises --


def test_promise_from_another_incarnation_does_not_elect_a_leader() -> None:
    group = started(A)
    group.leader.stand()
    promise(group, A)
    assert group.leader.term is not None
    hear(group, B, Promise(group.leader.term.ballot, 2, 1, 0, (), ()))
    assert not group.leader.term.elected


def test_new_leader_reproposes_reported_votes_and_fills_gaps_with_noops() -> None:
    group = started(A)
    group.leader.stand()
    promise(group, A)
    assert group.leader.term is not None
    votes = (Vote(1, ballot(0, B), command(b"one")), Vote(3, ballot(0, B), command(b"three")))
    effects = hear(group, B, Promise(group.leader.term.ballot, 1, 1, 0, votes, ()))
    items = (command(b"one"), Item(NOOP, b""), command(b"three"))
    assert (C, Accept(group.leader.term.ballot, 1, items, 0)) in sends(effects)
    assert not group.leader.term.acting  # the old slots are not decided yet


def test_candidate_that_is_behind_catches_up_before_it_leads() -> None:
    group = started(A)
    group.leader.stand()
    promise(group, A)
    promise(group, B, known=2)
    assert group.leader.term is not None
    assert not group.leader.term.elected
    effects = hear(group, B, Chosen(1, (command(b"one"), command(b"two"))))
    assert LeaderChanged(A) in events(effects)
    assert group.leader.term.acting


def test_candidate_that_is_behind_requests_missing_slots_until_they_arrive() -> None:
    group = started(A)
    group.leader.stand()
    promise(group, A)
    effects = promise(group, B, known=2)
    assert (B, Want(1, 2)) in sends(effects)
    assert Later(group.options.resend, Behind()) in effects
    group.timeout(Behind())
    assert Want(1, 2) in [message for _, message in sends(group.drain())]


def test_lost_slot_is_not_proposed_until_another_member_reports_it() -> None:
    group = started(A)
    group.leader.stand()
    promise(group, A)
    assert group.leader.term is not None
    effects = hear(group, B, Promise(group.leader.term.ballot, 1, 1, 0, (), ((1, 1),)))
    assert not any(isinstance(message, Accept) for _, message in sends(effects))
    effects = promise(group, C)
    assert (B, Accept(group.leader.term.ballot, 1, (Item(NOOP, b""),), 0)) in sends(effects)


def test_candidate_prepares_again_while_a_promise_has_lost_slots() -> None:
    """REP-1: this holds even if a majority has promised."""
    group = candidate(lost=((1, 2),))
    group.drain()
    group.timeout(Unanswered())
    effects = group.drain()
    assert [to for to, each in sends(effects) if isinstance(each, Prepare)] == [B, C]
    assert Later(OPTIONS.resend, Unanswered()) in effects
    group = candidate()
    group.drain()
    group.timeout(Unanswered())
    effects = group.drain()
    assert [to for to, each in sends(effects) if isinstance(each, Prepare)] == [C]
    assert Later(OPTIONS.resend, Unanswered()) not in effects


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
    assert hear(group, A, Consent(1)) == []  # the replica is already a candidate


def test_promise_for_another_ballot_or_a_later_first_slot_does_not_count() -> None:
    group = started(A)
    group.leader.stand()
    group.drain()
    assert group.leader.term is not None
    assert hear(group, B, Promise(group.leader.term.ballot, 1, 2, 0, (), ())) == []
    assert group.leader.term.promises.members == {}
    assert hear(group, B, Promise(ballot(9, A), 1, 1, 0, (), ())) == []
    assert group.leader.term.promises.members == {}


def test_candidate_fetches_chosen_slots_that_a_promise_shows_it_is_missing() -> None:
    group = started(A)
    group.leader.stand()
    group.drain()
    assert promise(group, B, known=3)[:2] == [
        Send(B, Want(1, 3), after=0),
        Later(RESEND, Behind()),
    ]
    assert (group.state.progress.known, group.state.fetching.applied_when_set) == (3, 0)


def test_promises_from_a_majority_elect_a_leader() -> None:
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


def test_elected_leader_waits_for_old_slots_before_it_serves_or_proposes() -> None:
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


def test_rejected_candidate_still_respects_the_lease_of_another_leader() -> None:
    group = started(A)
    hear(group, C, Beat(ballot(3, C), 0, 1.0))
    heard = group.state.following.heard
    group.now += 2 * SUSPICION
    group.leader.stand()
    hear(group, B, Reject(ballot(9, C)))
    assert (group.leader.term, group.state.following.heard) == (None, heard)


def test_follower_raises_its_next_ballot_after_a_rejection() -> None:
    group = started(A)
    assert hear(group, B, Reject(ballot(9, C))) == []
    assert hear(group, B, Reject(ballot(7, C))) == []
    group.leader.stand()
    assert records(group.drain()) == [Promised(ballot(10), vouch(0))]


# -- a single-node group --


def test_lone_replica_leads_with_a_ballot_above_its_promises() -> None:
    group = restored(Promised(ballot(5), vouch(0)), me=A, config=ALONE)
    group.start()
    assert group.state.votes.promised == group.leader.seen == ballot(6)
    assert group.leads(0.0)


def test_lone_replica_refuses_to_start_if_its_log_is_missing_a_slot() -> None:
    log = [Entry(slot, ballot(1), 0, b"x", 0, vouch(slot)) for slot in (1, 3)]
    with pytest.raises(Crippled, match="replica a: slot 2 is missing from its log"):
        restored(*log, me=A, config=ALONE).start()


@pytest.mark.parametrize(("lost", "stands"), [((1, 1), True), ((1, 2), False), ((2, 3), False)])
def test_lone_replica_becomes_a_candidate_only_if_all_lost_slots_are_applied(
    lost: tuple[int, int], stands: bool
) -> None:
    group = started(A, ALONE)
    group.leader.term = None
    group.state.progress.applied, group.state.votes.lost = 1, [lost]
    expire(group, Silence())
    assert (group.leader.term is not None) == stands
