"""REP-2: test the exact effects of offers, silence and membership changes."""

from __future__ import annotations

import pytest

from oncecast.kernel.protocol import Emit, Later, NodeId, Send
from oncecast.replication.events import Change, LeaderChanged, Propose, Removed, Suspected
from oncecast.replication.messages import (
    CONFIG,
    NOOP,
    Accept,
    Accepted,
    Beat,
    BeatDue,
    Chosen,
    Flush,
    Guide,
    Heard,
    Item,
    Offer,
    OfferDue,
    Prepare,
    Promise,
    Release,
    Silence,
    Unanswered,
    Vote,
)
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import NO_MEMBERS, Config, Member, encode_config
from tests.replication.replicas import (
    OPTIONS,
    THREE,
    A,
    B,
    C,
    D,
    E,
    accepted_slots,
    ballot,
    command,
    events,
    hear,
    leading,
    promise,
    sends,
    started,
    sync,
)
from tests.replication.test_membership import (
    FOUR,
    alive,
    answered,
    decide,
    offered,
    outsider,
    queued,
    replacing,
    report,
)

NO_NODE = NodeId("")
TWO = Config(1, THREE.members[:2], 3)
SUSPICION = OPTIONS.suspicion
X = command(b"x")


def changing(group: Paxos) -> tuple[int, Config] | None:
    assert group.leader.term is not None
    return group.leader.term.changing


def proven(group: Paxos) -> int:
    assert group.leader.term is not None
    return group.leader.term.proven


# -- non-members --


def test_non_member_offers_itself_with_each_heartbeat() -> None:
    group = outsider()
    group.state.progress.applied = 7
    group.timeout(OfferDue())
    offer = Offer(group.state.membership.incarnation, 7)
    assert group.drain() == [
        Send(A, offer, after=1),
        Send(B, offer, after=1),
        Later(OPTIONS.heartbeat, OfferDue()),
    ]


def test_non_member_that_hears_a_leader_offers_itself_only_to_it() -> None:
    group = outsider()
    group.state.fetching.ask(C)
    hear(group, C, Beat(ballot(1, C), 0, 1.0))
    hear(group, A, Guide(B, THREE))
    group.now += 2 * SUSPICION - 0.1
    group.timeout(OfferDue())
    assert [to for to, _ in sends(group.drain())] == [C]


def test_member_does_not_offer_itself_and_ignores_guides() -> None:
    group = started()
    group.timeout(OfferDue())
    assert group.drain() == []
    hear(group, A, Guide(D, FOUR))
    assert (group.joining.guide, group.state.membership.contacts) == (NO_NODE, ())


def test_guide_without_a_membership_is_ignored() -> None:
    group = outsider()
    hear(group, A, Guide(C, NO_MEMBERS))
    assert (group.joining.guide, group.state.membership.contacts) == (NO_NODE, (A, B))


def test_members_named_by_a_guide_precede_the_old_contacts() -> None:
    group = outsider()
    hear(group, A, Guide(D, FOUR))
    assert (group.joining.guide, group.state.membership.contacts) == (NO_NODE, (A, B, C))
    hear(group, A, Guide(C, THREE.removed(A)))
    assert (group.joining.guide, group.state.membership.contacts) == (C, (B, C, A))


def test_non_member_keeps_a_bounded_number_of_contacts() -> None:
    group = outsider()
    many = Config(1, tuple(Member(NodeId(f"n{at}"), 1) for at in range(100)), 3)
    hear(group, A, Guide(NO_NODE, many))
    assert len(group.state.membership.contacts) == 64


# -- offers --


def test_offer_is_answered_with_the_leader_and_the_membership() -> None:
    """SEC-1: a node that is not admitted learns addresses only."""
    shown = Config(1, (Member(A, 0), Member(B, 0), Member(C, 0)), 3)
    numbered = Config(1, THREE.members, 3, group=7)
    assert hear(started(config=numbered), D, Offer(9, 0)) == [
        Send(D, Guide(NO_NODE, shown), after=0)
    ]
    group = leading()
    assert hear(group, D, Offer(9, 4))[:1] == [Send(D, Guide(A, shown), after=0)]
    assert group.state.roster.offers[D][:2] == (Member(D, 9), 4)
    assert group.state.roster.last_heard[D] == group.now


def test_follower_and_candidate_keep_no_offers() -> None:
    group = started()
    hear(group, D, Offer(9, 0))
    assert (group.state.roster.offers, group.state.roster.last_heard) == ({}, {})
    candidate = started(A)
    candidate.leader.stand()
    hear(candidate, D, Offer(9, 0))
    assert candidate.state.roster.offers == {}


def test_offer_from_a_member_does_not_end_its_silence() -> None:
    group = leading()
    alive(group, B, C)
    heard = group.state.roster.last_heard[C]
    group.now += 1.0
    offered(group, C, incarnation=2)
    assert group.state.roster.last_heard[C] == heard


def test_leader_keeps_a_bounded_number_of_offers() -> None:
    group = leading()
    for at in range(70):
        offered(group, NodeId(f"n{at}"))
    assert len(group.state.roster.offers) == 64
    offered(group, NodeId("n0"), applied=5)
    assert group.state.roster.offers[NodeId("n0")].applied == 5


def test_leader_forgets_non_members_without_a_kept_offer() -> None:
    """A leader keeps the last message times of members, and of nodes with a kept offer."""
    group = leading()
    alive(group, B, C)
    for at in range(1000):
        offered(group, NodeId(f"n{at}"))
    assert set(group.state.roster.last_heard) == {B, C, *group.state.roster.offers}
    group.now += 2 * SUSPICION + 0.1
    group.reconfiguration.look()
    assert list(group.state.roster.last_heard) == [B, C]


def test_offer_that_is_not_renewed_is_dropped() -> None:
    group = leading()
    alive(group, B, C)
    offered(group, D)
    group.now += 2 * SUSPICION
    group.reconfiguration.look()
    assert list(group.state.roster.offers) == [D]
    group.now += 0.1
    group.reconfiguration.look()
    assert group.state.roster.offers == {}


def test_answer_to_a_beat_renews_an_offer_from_the_same_incarnation() -> None:
    group = leading()
    offered(group, D)
    group.reconfiguration._choose_newcomer(D)
    group.now += 1.0
    assert group.leader.term is not None
    hear(group, D, Heard(group.leader.term.ballot, group.now, 9, 5, 2.0))
    assert group.state.roster.offers[D][:3] == (Member(D, 9), 5, group.now)
    group.reconfiguration._choose_newcomer(D)  # again: its turn ended because no seat is free
    hear(group, D, Heard(group.leader.term.ballot, group.now, 8, 6, 2.0))
    assert group.state.roster.offers[D].applied == 5
    assert group.state.roster.reported == {Member(D, 9): 5, Member(D, 8): 6}


# -- silence --


def test_silent_member_is_reported_as_suspected_once() -> None:
    group = leading()
    alive(group, B, C)
    began = group.now
    for later, silent in ((SUSPICION, []), (SUSPICION + 0.1, [C])):
        group.now = began + later
        assert group.leader.term is not None
        hear(group, B, Heard(group.leader.term.ballot, group.now, 1, 0, 2.0))
        group.drain()
        group.reconfiguration.look()
        assert list(group.state.roster.silent) == silent
    assert group.drain() == [Emit(Suspected(C, True), after=0)]
    group.reconfiguration.look()
    assert group.drain() == []


def test_answer_from_the_same_incarnation_ends_the_suspicion_once() -> None:
    group = leading()
    group.state.roster.silent[C] = None
    assert group.leader.term is not None
    other = Heard(group.leader.term.ballot, group.now, 2, 0, 2.0)
    assert hear(group, C, other) == []
    heard = Heard(group.leader.term.ballot, group.now, 1, 0, 2.0)
    assert hear(group, C, heard) == [Emit(Suspected(C, False), after=0)]
    assert hear(group, C, heard) == []
    assert group.state.roster.last_heard[C] == group.now


def test_member_silence_is_measured_from_the_start_of_the_term() -> None:
    group = leading()
    group.now += SUSPICION
    group.reconfiguration.look()
    assert group.state.roster.silent == {}


def test_new_term_drops_slots_that_members_reported_in_earlier_terms() -> None:
    group = started(A)
    group.state.roster.reported[Member(B, 1)] = 7
    group.leader.stand()
    assert group.state.roster.reported == {}


# -- requested changes --


def test_follower_drops_requested_changes() -> None:
    group = started()
    group.request(Change(remove=C))
    assert group.state.roster.changes == []


def test_group_size_is_decided_only_if_it_differs() -> None:
    group = leading()
    alive(group, B, C)
    group.request(Change(size=3))
    assert decide(group) == []
    group.request(Change(size=5))
    assert decide(group) == [NOOP, Config(2, THREE.members, 5)]
    assert group.state.roster.changes == []


def test_size_changes_together_with_an_added_or_removed_member() -> None:
    group = leading()
    alive(group, B, C)
    group.request(Change(remove=C, size=2))
    assert decide(group) == [NOOP, Config(2, THREE.members[:2], 2)]
    group = leading()
    alive(group, B, C)
    offered(group, D)
    group.request(Change(add=D, size=4))
    answered(group, D)
    assert decide(group) == [NOOP, Config(2, FOUR.members, 4)]


def test_change_that_adds_an_unknown_node_is_dropped_and_the_next_change_is_made() -> None:
    group = leading()
    alive(group, B, C)
    group.request(Change(add=E, remove=C))
    group.request(Change(size=5))
    assert decide(group)[-1] == Config(2, THREE.members, 5)
    assert group.state.membership.config.members == THREE.members


def test_change_that_adds_a_node_waits_until_the_node_has_caught_up() -> None:
    group = leading()
    alive(group, B, C)
    group.state.progress.applied = OPTIONS.window_slots
    offered(group, D, applied=0)
    group.request(Change(add=D))
    assert (queued(group), changing(group)) == ([], None)
    assert group.state.roster.changes == [Change(add=D)]
    assert group.state.roster.newcomer == D


@pytest.mark.parametrize(("lag", "near"), [(64, True), (65, False)])
def test_newcomer_within_64_slots_has_caught_up(lag: int, near: bool) -> None:
    group = leading()
    group.state.progress.applied = 1000
    offered(group, D, applied=1000 - lag)
    assert group.state.roster.offers[D].lag == lag
    assert group.state.roster.caught_up(D) == near


@pytest.mark.parametrize(("lag", "live"), [(2048, True), (2049, False)])
def test_newcomer_within_2048_slots_gets_proposals(lag: int, live: bool) -> None:
    group = leading(config=Config(1, THREE.members, 4))  # one member is missing
    group.state.progress.applied = 5000
    group.state.roster.newcomer = D
    offered(group, D, applied=5000 - lag)
    assert group.state.roster.followers() == ([B, C, D] if live else [B, C])
    assert group.state.roster.audience() == [B, C, D]


def test_lone_leader_sends_a_newcomer_beats_but_no_proposals() -> None:
    group = leading(config=Config(1, (Member(A, 1),), 3))
    group.state.roster.newcomer, group.state.roster.newcomer_live = D, True
    group.request(Propose(1, b"x"))
    assert accepted_slots(group.drain(), to=D) == []
    assert group.state.roster.audience() == [D]


def test_newcomer_lag_is_measured_from_the_beat_it_answers() -> None:
    group = leading()
    alive(group, B, C)
    offered(group, D)
    group.request(Change(add=D))
    group.state.progress.applied = 10
    group.now += 0.2
    group.timeout(BeatDue())
    beat_at = group.now
    group.now += 0.5
    group.state.progress.applied = 500
    assert group.leader.term is not None
    hear(group, D, Heard(group.leader.term.ballot, beat_at, 9, 4, 2.0))
    assert group.state.roster.offers[D].lag == 6
    hear(group, D, Heard(group.leader.term.ballot, beat_at, 9, 12, 2.0))
    assert group.state.roster.offers[D].lag == 0
    hear(group, D, Heard(group.leader.term.ballot, beat_at - 50.0, 9, 100, 2.0))
    assert group.state.roster.offers[D].lag == 400


def test_newcomers_take_turns_to_catch_up() -> None:
    group = leading()
    assert group.leader.term is not None
    for node in (D, E):
        offered(group, node)
        group.leader.term.ends[Member(node, 9)] = group.now + 99.0
    assert group.reconfiguration._next_newcomer([D, E]) == D
    group.reconfiguration._choose_newcomer(D)
    began = group.now
    assert group.state.roster.newcomer_since == began
    group.now = began + OPTIONS.replace_after - 0.1
    group.reconfiguration._choose_newcomer(D)
    assert group.state.roster.newcomer_since == began
    assert group.reconfiguration._next_newcomer([D, E]) == D
    group.now = began + OPTIONS.replace_after
    assert group.reconfiguration._next_newcomer([D, E]) == E
    group.reconfiguration._choose_newcomer(E)
    assert group.state.roster.newcomer_since == group.now
    group.now += OPTIONS.replace_after
    assert group.reconfiguration._next_newcomer([D, E]) == D


def test_newcomer_that_does_not_answer_has_a_short_turn() -> None:
    """SEC-1: otherwise nodes that never answer would keep other nodes out."""
    group = leading()
    for node in (D, E):
        offered(group, node)
    group.reconfiguration._choose_newcomer(D)
    group.now += 2 * SUSPICION - 0.1
    assert group.reconfiguration._next_newcomer([D, E]) == D
    group.now += 0.2
    assert group.reconfiguration._next_newcomer([D, E]) == E


def test_member_is_removed_only_if_most_other_members_have_the_last_membership() -> None:
    group = leading()
    hear(group, B, Chosen(1, (Item(CONFIG, encode_config(FOUR)),)))
    left = FOUR.removed(C)
    assert group.state.membership.history.since == 1
    assert not group.state.roster.informed(left)
    group.state.roster.reported[Member(B, 2)] = 9  # B reports as another incarnation
    group.state.roster.reported[Member(C, 1)] = 9  # C is the member to remove
    group.state.roster.reported[Member(B, 1)] = 0
    assert not group.state.roster.informed(left)
    group.state.roster.reported[Member(B, 1)] = 1
    assert group.state.roster.informed(left)


def test_reports_from_former_members_are_dropped() -> None:
    group = leading()
    group.state.roster.reported = {Member(B, 1): 1, Member(C, 1): 1, Member(D, 4): 1}
    hear(group, B, Chosen(1, (Item(CONFIG, encode_config(THREE.removed(C))),)))
    assert group.state.roster.reported == {Member(B, 1): 1}


def test_newcomer_that_has_caught_up_offers_itself_at_once() -> None:
    group = outsider()
    group.state.fetching.ask(C)
    hear(group, C, Beat(ballot(1, C), 2, 1.0))
    assert not any(isinstance(each, Offer) for _, each in sends(hear(group, A, Chosen(1, (X,)))))
    effects = hear(group, A, Chosen(2, (X,)))
    assert sends(effects)[-1] == (C, Offer(group.state.membership.incarnation, 2))
    assert not any(isinstance(each, Offer) for _, each in sends(hear(group, A, Chosen(3, (X,)))))
    member = started()
    member.state.progress.known = 1
    assert not any(isinstance(each, Offer) for _, each in sends(hear(member, A, Chosen(1, (X,)))))


def test_new_member_sets_its_suspicion_timer() -> None:
    group = started(D)
    group.state.membership.incarnation = 9
    effects = hear(group, A, Chosen(1, (Item(CONFIG, encode_config(FOUR)),)))
    assert any(isinstance(each, Later) and each.timer == Silence() for each in effects)
    member = started()
    effects = hear(member, A, Chosen(1, (Item(CONFIG, encode_config(FOUR)),)))
    assert not any(isinstance(each, Later) and each.timer == Silence() for each in effects)


def test_newcomer_sends_its_vote_to_the_leader_only() -> None:
    effects = hear(started(D), A, Accept(ballot(1), 1, (X,), 0))
    assert [to for to, each in sends(effects) if isinstance(each, Accepted)] == [A]


def test_change_that_already_took_effect_is_dropped() -> None:
    group = leading()
    alive(group, B, C)
    group.request(Change(add=B))
    group.request(Change(remove=E))
    assert decide(group) == []
    assert group.state.roster.changes == []


def test_change_in_flight_is_not_proposed_again() -> None:
    group = leading()
    alive(group, B, C)
    group.request(Change(size=5))
    assert [item.kind for item in queued(group)] == []
    sync(group)
    hear(group, B, Accepted(ballot(1), 1, 1, 1))
    assert changing(group) == (2, Config(2, THREE.members, 5))
    group.reconfiguration.look()
    assert queued(group) == []


def test_change_waits_for_proposals_in_flight_and_needs_no_extra_slot() -> None:
    group = leading()
    alive(group, B, C)
    group.request(Propose(1, b"x"))
    group.request(Change(size=5))
    assert (queued(group), changing(group)) == ([], None)
    sync(group)
    effects = hear(group, B, Accepted(ballot(1), 1, 1, 1))
    assert proven(group) == 1
    accepts = [each for to, each in sends(effects) if to == B and isinstance(each, Accept)]
    assert [[item.kind for item in each.items] for each in accepts] == [[CONFIG]]
    assert changing(group) == (2, Config(2, THREE.members, 5))


def test_leader_proposes_nothing_after_a_membership_until_it_is_decided() -> None:
    group = leading()
    alive(group, B, C)
    for value in (b"x", b"y"):
        group.request(Propose(1, value))
        group.timeout(Flush())
    sync(group)
    hear(group, B, Accepted(ballot(1), 1, 1, 1))
    group.request(Change(size=5))
    assert changing(group) == (3, Config(2, THREE.members, 5))
    group.request(Propose(2, b"behind"))
    group.timeout(Flush())
    group.drain()
    sync(group)
    hear(group, B, Accepted(ballot(1), 2, 2, 1))
    assert group.applied == 2
    assert changing(group) is not None
    assert queued(group) == [command(b"behind")]
    effects = hear(group, B, Accepted(ballot(1), 3, 3, 1))
    assert changing(group) is None
    assert Accept(ballot(1), 4, (command(b"behind"),), 3) in [each for _, each in sends(effects)]


def test_slots_decided_with_other_ballots_do_not_prove_the_membership() -> None:
    group = leading()
    hear(group, B, Chosen(1, (command(b"x"),)))
    assert proven(group) == 0
    hear(group, B, Accepted(ballot(0, C), 2, 2, 1))
    hear(group, C, Accepted(ballot(0, C), 2, 2, 1))
    hear(group, B, Chosen(2, (command(b"x"),)))
    assert proven(group) == 0
    hear(group, B, Accepted(ballot(1), 3, 3, 1))  # one vote is not a majority
    hear(group, B, Chosen(3, (command(b"x"),)))
    assert proven(group) == 0
    group.request(Propose(1, b"x"))
    sync(group)
    hear(group, B, Accepted(ballot(1), 4, 4, 1))
    assert (group.applied, proven(group)) == (4, 1)


def test_membership_decided_by_the_leader_itself_counts_as_proven() -> None:
    group = leading()
    alive(group, B, C)
    group.request(Change(size=5))
    decide(group)
    assert (group.state.membership.config.version, proven(group)) == (2, 2)
    group.request(Change(size=4))
    assert changing(group) == (3, Config(3, THREE.members, 4))


# -- surplus and missing members --


def test_first_newcomer_that_has_caught_up_is_added() -> None:
    group = leading(config=TWO)
    alive(group, B)
    group.state.progress.applied = OPTIONS.window_slots
    offered(group, D, applied=0)
    offered(group, E, applied=OPTIONS.window_slots)
    assert group.leader.term is not None
    for node in (D, E):
        group.leader.term.ends[Member(node, 9)] = group.now + 1.0
    config = group.reconfiguration._next(group.leader.term)
    assert config == Config(2, (*TWO.members, Member(E, 9)), 3)


def test_member_silent_for_exactly_the_limit_is_not_replaced() -> None:
    group = leading()
    alive(group, B, C)
    offered(group, D)
    assert group.leader.term is not None
    group.leader.term.ends[Member(D, 9)] = 1e9
    group.state.roster.last_heard.update({B: group.now, C: group.now - OPTIONS.replace_after})
    group.leader.term.since = 0.0
    assert group.reconfiguration._with_one(group.leader.term) is None
    group.state.roster.last_heard[C] -= 0.1
    assert group.reconfiguration._with_one(group.leader.term) == FOUR
    assert group.state.roster.newcomer == NO_NODE


def test_newcomer_is_asked_again_if_its_answer_has_expired() -> None:
    group = leading()
    offered(group, D)
    group.state.roster.last_heard[C] = -100.0
    assert group.leader.term is not None
    group.leader.term.since = -100.0
    group.leader.term.ends[Member(D, 9)] = group.now
    assert group.reconfiguration._with_one(group.leader.term) is None
    assert group.state.roster.newcomer == D
    group.leader.term.ends[Member(D, 9)] = group.now + 0.1
    assert group.reconfiguration._with_one(group.leader.term) == FOUR


def test_newcomer_gets_each_beat_once() -> None:
    group = leading()
    assert group.state.roster.audience() == [B, C]
    group.state.roster.newcomer = D
    assert group.state.roster.audience() == [B, C, D]
    group.state.roster.newcomer = C
    assert group.state.roster.audience() == [B, C]


def test_newcomer_whose_offer_has_expired_is_dropped() -> None:
    group = leading()
    alive(group, B, C)
    group.state.roster.newcomer = D
    group.reconfiguration.look()
    assert group.state.roster.newcomer == NO_NODE


def test_member_that_offers_a_new_incarnation_stays_while_the_old_one_is_active() -> None:
    group = leading()
    alive(group, B, C)
    offered(group, C, incarnation=2)
    assert group.state.roster.lost_disk() == NO_NODE
    group.state.roster.silent[C] = None
    assert group.state.roster.lost_disk() == C
    offered(group, C, incarnation=1)
    assert group.state.roster.lost_disk() == NO_NODE
    group.state.roster.silent[D] = None
    offered(group, D)
    assert group.state.roster.lost_disk() == NO_NODE


def test_surplus_member_is_removed_only_once_the_leader_knows_which_members_are_up() -> None:
    group = replacing()
    assert group.leader.term is not None
    group.state.roster.last_heard.update({B: group.now, C: group.now - 50.0, D: group.now})
    group.state.roster.silent.clear()
    assert (
        group.reconfiguration._without_one(group.leader.term) is None
    )  # D has not promised yet: no majority of four
    promise_of_d = Promise(group.leader.term.ballot, 9, 1, group.applied, (), ())
    group.receive(D, promise_of_d)
    group.state.roster.silent = {}
    assert (
        group.reconfiguration._without_one(group.leader.term) is None
    )  # B and D have not reported their slots
    group.state.roster.reported.update({Member(B, 1): group.applied, Member(D, 9): group.applied})
    assert group.reconfiguration._without_one(group.leader.term) == FOUR.removed(C)
    group.state.roster.last_heard[C] = group.now - SUSPICION
    assert group.reconfiguration._without_one(group.leader.term) == FOUR.removed(D)
    group.leader.term.since = group.now - SUSPICION
    assert group.reconfiguration._without_one(group.leader.term) is None
    group.leader.term.since -= 0.1
    group.state.roster.silent = {B: None, C: None}
    assert group.reconfiguration._without_one(group.leader.term) is None


def test_new_membership_resets_offers_and_silence_of_its_members() -> None:
    group = leading()
    alive(group, B, C)
    group.state.roster.silent = {C: None, B: None}
    offered(group, D)
    group.state.roster.newcomer = D
    hear(group, B, Chosen(1, (Item(CONFIG, encode_config(FOUR)),)))
    assert (group.state.roster.offers, group.state.roster.newcomer) == ({}, NO_NODE)
    hear(group, B, Chosen(2, (Item(CONFIG, encode_config(FOUR.removed(C))),)))
    assert list(group.state.roster.silent) == [B]


def test_removed_leader_steps_down_and_offers_itself() -> None:
    group = leading()
    alive(group, B, C)
    group.request(Change(remove=A))
    sync(group)
    hear(group, B, Accepted(ballot(1), 1, 1, 1))
    report(group, B, C)
    sync(group)
    effects = hear(group, B, Accepted(ballot(1), 2, 2, 1))
    assert group.leader.term is None
    assert events(effects) == [Removed(A), LeaderChanged(NO_NODE)]
    released = [to for to, each in sends(effects) if each == Release(ballot(1), NO_NODE)]
    assert released == [B, C]
    assert Later(OPTIONS.heartbeat, OfferDue()) in effects
    assert Later(0.0, BeatDue()) not in effects


def removing_itself(config: Config = TWO) -> Paxos:
    """Return a leader that has decided slot 1 and is waiting to remove itself."""
    group = leading(config=config)
    alive(group, *group.state.membership.others())
    group.request(Change(remove=A))
    sync(group)
    effects = hear(group, B, Accepted(ballot(1), 1, 1, 1))
    assert Later(0.0, BeatDue()) in effects
    assert not [each for _, each in sends(effects) if isinstance(each, Accept)]
    return group


def test_leader_leaves_a_group_of_two_only_once_the_other_replica_has_every_slot() -> None:
    """REP-2: the disk of that replica may have lost a slot after its vote was counted."""
    group = removing_itself()
    group.request(Propose(7, b"x"))
    early = hear(group, B, Heard(ballot(1), group.now, 1, 0, SUSPICION))
    assert sends(early) == []
    left = Item(CONFIG, encode_config(TWO.removed(A)))
    effects = hear(group, B, Heard(ballot(1), group.now, 1, 1, SUSPICION))
    assert [each for _, each in sends(effects) if isinstance(each, Accept)] == [
        Accept(ballot(1), 2, (left,), 1)
    ]


def test_next_leader_completes_a_removal_only_once_the_last_replica_has_every_slot() -> None:
    """REP-2: an earlier leader proposed the removal."""
    group = started(A, TWO)
    group.leader.stand()
    group.drain()
    left = Item(CONFIG, encode_config(TWO.removed(A)))
    votes = (Vote(1, ballot(1, B), X), Vote(2, ballot(1, B), left))
    promise(group, A)
    assert group.leader.term is not None
    own = group.leader.term.ballot
    hear(group, B, Promise(own, 1, 1, 0, votes, ()))
    sync(group)
    effects = hear(group, B, Accepted(own, 1, 1, 1))
    assert Later(0.0, BeatDue()) in effects
    assert not [each for _, each in sends(effects) if isinstance(each, Accept)]
    effects = hear(group, B, Heard(own, group.now, 1, 1, SUSPICION))
    assert [each for _, each in sends(effects) if isinstance(each, Accept)] == [
        Accept(own, 2, (left,), 1)
    ]


def test_removal_that_waits_is_withdrawn_if_a_remaining_member_fails() -> None:
    """REP-2: commands would wait behind it."""
    group = removing_itself(THREE)
    group.request(Propose(7, b"x"))
    assert [item.kind for item in queued(group)] == [CONFIG, X.kind]
    group.now += SUSPICION + 0.1
    hear(group, C, Heard(ballot(1), group.now, 1, 0, SUSPICION))
    group.timeout(BeatDue())
    effects = group.drain()
    assert list(group.state.roster.silent) == [B]
    assert (queued(group), group.state.roster.changes) == ([], [])
    proposed = Accept(ballot(1), 2, (X,), 1)
    assert [(to, each) for to, each in sends(effects) if isinstance(each, Accept)] == [
        (B, proposed),
        (C, proposed),
    ]


def reporting(group: Paxos, applied: int) -> list[Accept]:
    """Let B and C answer a Beat with their last slot. Return the proposals for B."""
    group.now += OPTIONS.heartbeat
    group.timeout(BeatDue())
    effects = group.drain()
    for node in (B, C):
        effects += hear(group, node, Heard(ballot(1), group.now, 1, applied, SUSPICION))
    return [each for to, each in sends(effects) if to == B and isinstance(each, Accept)]


def test_commands_do_not_wait_long_for_a_member_that_does_not_catch_up() -> None:
    """REP-2: its damaged log may lack a slot that no other replica can read."""
    group = removing_itself(THREE)
    group.request(Propose(7, b"x"))
    proposals = [each for _ in range(4) for each in reporting(group, applied=0)]
    assert proposals == [Accept(ballot(1), 2, (X,), 1)]
    sync(group)
    hear(group, B, Accepted(ballot(1), 2, 2, 1))
    reporting(group, applied=0)
    assert (group.applied, queued(group)) == (2, [])


def test_removal_is_proposed_again_once_the_members_have_caught_up() -> None:
    """REP-2"""
    group = removing_itself(THREE)
    for _ in range(4):
        reporting(group, applied=0)
    assert queued(group) == []
    left = Item(CONFIG, encode_config(THREE.removed(A)))
    proposals = [each for _ in range(2) for each in reporting(group, applied=1)]
    assert proposals == [Accept(ballot(1), 2, (left,), 1)]


def test_leader_removes_no_member_that_may_have_an_entry_that_it_cannot_read() -> None:
    """REP-1: the entry is fetched first, unless no member has it or the member is silent."""
    group = leading()
    alive(group, B, C)
    group.state.fetching.note_hole(1)
    left = THREE.removed(C)
    assert not group.reconfiguration._may_lose(C, left)
    group.state.roster.silent[C] = None
    assert group.reconfiguration._may_lose(C, left)
    group.state.roster.silent.clear()
    group.state.fetching.holes[1] = {B: None, C: None}
    assert group.reconfiguration._may_lose(C, left)


def test_leader_sends_beats_at_once_after_it_adds_a_member() -> None:
    group = leading(config=TWO)
    alive(group, B)
    offered(group, D)
    answered(group, D)
    sync(group)
    hear(group, B, Accepted(ballot(1), 1, 1, 1))
    group.reconfiguration.look()
    sync(group)
    effects = hear(group, B, Accepted(ballot(1), 2, 2, 1))
    assert group.state.membership.config.nodes() == [A, B, D]
    assert Later(0.0, BeatDue()) in effects
    assert not any(
        isinstance(each, Prepare) for _, each in sends(effects)
    )  # a majority has promised


def test_leader_without_promises_from_a_majority_asks_for_them_again() -> None:
    group = leading(config=Config(1, (Member(A, 1), Member(B, 1)), 2))
    assert group.leader.term is not None
    del group.leader.term.promises.members[Member(B, 1)]
    group.leader.term.promises._agreed = None
    group.timeout(Unanswered())
    group.drain()
    group.leader.term.waiting = False
    group.reconfiguration.reconfigured(group.state.membership.config)
    assert group.drain() == [
        Later(0.0, BeatDue()),
        Send(B, Prepare(ballot(1), 1), after=2),
        Later(OPTIONS.resend, Unanswered()),
    ]


def test_leader_that_needs_more_promises_asks_for_them_again() -> None:
    """The queue must not wait forever for a member that can report the slot."""
    group = leading()
    group.timeout(Unanswered())
    group.drain()
    lost = Promise(ballot(1), 1, 1, 0, (), ((1, 1),))
    assert hear(group, B, lost) == [Later(OPTIONS.resend, Unanswered())]
    effects = promise(group, C)
    accepts = [each for to, each in sends(effects) if to == B]
    assert Accept(ballot(1), 1, (Item(NOOP, b""),), 0) in accepts


def test_reported_votes_are_dropped_once_decided() -> None:
    group = started(A)
    group.leader.stand()
    promise(group, A)
    assert group.leader.term is not None
    begun = Vote(1, ballot(0, C), command(b"x"))
    hear(group, B, Promise(group.leader.term.ballot, 1, 1, 0, (begun,), ()))
    assert group.leader.term.promises.value(1, THREE) == begun.item
    sync(group)
    hear(group, B, Accepted(group.leader.term.ballot, 1, 1, 1))
    assert group.applied == 1
    assert group.leader.term.promises.value(1, THREE) == Item(NOOP, b"")


def test_last_eight_beats_are_kept() -> None:
    """REP-2: an answer to an older Beat does not show how far its sender lags."""
    group = leading()
    roster = group.state.roster
    roster.beats.clear()
    for number in range(9):
        roster.beats.append((float(number), number))
    assert [roster.chosen_at(stamp, 77) for stamp in (0.0, 1.0, 8.0, 9.0)] == [
        77,
        1,
        8,
        77,
    ]


def test_chosen_newcomer_gets_a_beat_at_once() -> None:
    """REP-2: the leader does not wait for the next heartbeat."""
    group = leading()
    group.state.roster.beats.clear()
    assert group.leader.term is not None
    group.reconfiguration._choose_newcomer(D)
    assert group.drain() == [Send(D, Beat(group.leader.term.ballot, 0, group.now, 0), after=0)]
    assert list(group.state.roster.beats) == [(group.now, 0)]
    group.reconfiguration._choose_newcomer(NodeId(""))
    assert (group.drain(), group.state.roster.newcomer) == ([], "")
    follower = started()
    follower.reconfiguration._choose_newcomer(D)
    assert (follower.drain(), follower.state.roster.newcomer, len(follower.state.roster.beats)) == (
        [],
        D,
        0,
    )


def test_newcomers_take_turns_in_order() -> None:
    """REP-2"""
    group = leading()
    for node in (A, D, E):
        offered(group, node)
    group.state.roster.newcomer, group.state.roster.newcomer_since = (
        D,
        group.now - group.options.replace_after,
    )
    assert group.reconfiguration._next_newcomer([D, E, A]) == E
    group.state.roster.newcomer = A
    assert group.reconfiguration._next_newcomer([D, E, A]) == D
