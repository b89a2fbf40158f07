"""REP-1: a leader finishes old slots, proposes new values, and knows when to step down."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
    Born,
    Canvass,
    Chosen,
    Consent,
    Entry,
    Flush,
    Heard,
    Item,
    Prepare,
    Promise,
    Promised,
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
from oncecast.replication.quorum import Config, Member, encode_config
from tests.replication.replicas import (
    OPTIONS,
    THREE,
    A,
    B,
    C,
    D,
    E,
    ballot,
    command,
    events,
    hear,
    leading,
    promise,
    sends,
    started,
    sync,
    unstarted,
    vouch,
)


def propose(group: Paxos, token: int, value: bytes) -> list[Accept]:
    group.request(Propose(token, value))
    return [message for _, message in sends(group.drain()) if isinstance(message, Accept)]


def candidate(*votes: Vote, lost: tuple[tuple[int, int], ...] = (), **options: int) -> Paxos:
    """Return candidate A with promises of itself and of B, which reports these votes."""
    group = started(A, options=replace(OPTIONS, **options))
    group.leader.stand()
    promise(group, A)
    group.drain()
    group.receive(B, Promise(ballot(1), 1, 1, 0, votes, lost))
    return group


def test_nothing_is_proposed_after_an_undecided_membership_of_an_earlier_leader() -> None:
    """REP-2: the voters of later slots are unknown until it is decided."""
    config = THREE.added(Member(D, 1))
    change = Item(CONFIG, encode_config(config))
    votes = [Vote(slot, ballot(0, C), command(b"x")) for slot in (1, 2, 3)]
    group = candidate(votes[0], Vote(2, ballot(0, C), change), votes[2])
    (accept,) = [each for to, each in sends(group.drain()) if isinstance(each, Accept) and to == B]
    assert (accept.slot, accept.items) == (1, (command(b"x"), change))
    assert group.leader.term is not None
    assert group.leader.term.changing == (2, config)


def test_proposal_has_as_many_items_as_its_byte_limit_allows() -> None:
    """REP-1: an item that begins within the limit is sent whole."""
    for sizes, together in (((1, 9, 5), 2), ((1, 8, 5), 3), ((10, 1), 1), ((11, 1), 1)):
        votes = [Vote(at, ballot(0, C), command(bytes(size))) for at, size in enumerate(sizes, 1)]
        group = candidate(*votes, accept_bytes=10)
        accepts = [each for to, each in sends(group.drain()) if isinstance(each, Accept)]
        assert len(accepts[0].items) == together


def test_one_byte_of_the_window_is_enough_for_a_proposal() -> None:
    """REP-1"""
    group = leading(options=replace(OPTIONS, window_bytes=5, accept_bytes=5))
    assert [each.slot for each in propose(group, 1, b"four")] == [1, 1]
    group.request(Propose(2, b"more"))
    group.timeout(Flush())
    accepts = [each for _, each in sends(group.drain()) if isinstance(each, Accept)]
    assert [each.slot for each in accepts] == [2, 2]
    group.request(Propose(3, b"x"))
    group.timeout(Flush())
    assert [each for _, each in sends(group.drain()) if isinstance(each, Accept)] == []


def test_leader_that_steps_down_waits_for_no_answers() -> None:
    """REP-1"""
    group = leading()
    group.state.progress.certain = 1
    group.request(Propose(1, b"mine"))
    assert group.leader.term is None
    assert [type(each.timer) for each in group.drain() if isinstance(each, Later)] == [Silence]


def test_candidate_asks_again_while_a_promise_has_lost_slots() -> None:
    """REP-1: even if a majority has promised."""
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


def test_promise_whose_lost_slots_are_all_applied_is_complete() -> None:
    """REP-1"""
    group = leading()
    assert group.leader.term is not None
    hear(group, C, Promise(group.leader.term.ballot, 1, 1, 0, (), ((1, 3),)))
    for applied, asked in ((2, [C]), (3, [])):
        group.state.progress.applied = applied
        group.leader._prepare_again(group.leader.term)
        assert [to for to, _ in sends(group.drain())] == asked


def test_leader_asks_new_members_again_until_they_have_promised() -> None:
    """REP-2"""
    group = leading()
    group.state.membership.history.decided(
        1, Config(2, (Member(A, 1), Member(D, 1), Member(E, 1)), 3)
    )
    group.timeout(Unanswered())
    assert Later(OPTIONS.resend, Unanswered()) in group.drain()


# -- elections --


def test_replica_without_a_leader_canvasses_before_it_uses_a_ballot() -> None:
    """REP-5: it may have been cut off itself, and a ballot would depose a working leader."""
    group = started(A)
    group.timeout(Silence())
    effects = group.drain()
    assert effects[:2] == [Send(B, Canvass(1), after=0), Send(C, Canvass(1), after=0)]
    (again,) = effects[2:]
    assert isinstance(again, Later)
    assert again.timer == Silence()
    assert group.leader.term is None


def test_replica_that_loses_its_leader_names_none_until_it_hears_it_again() -> None:
    """It must not redirect clients to a leader that is gone."""
    group = started(B)
    assert LeaderChanged(A) in events(hear(group, A, Beat(ballot(1), 0, 7.5)))
    group.now += 2 * group.options.suspicion
    group.timeout(Silence())
    assert events(group.drain()) == [LeaderChanged(NodeId(""))]
    assert LeaderChanged(A) in events(hear(group, A, Beat(ballot(1), 0, 9.5)))


def test_who_stands_promises_itself_on_disk_before_it_asks_others() -> None:
    group = started(A)
    group.timeout(Silence())
    group.drain()
    assert hear(group, C, Consent(1)) == [
        Append(Promised(ballot(1), vouch(0)), 2),
        Send(A, Promise(ballot(1), 1, 1, 0, (), ()), after=2),
        Send(B, Prepare(ballot(1), 1), after=2),
        Send(C, Prepare(ballot(1), 1), after=2),
        Later(group.options.resend, Unanswered()),
    ]


def test_removed_candidate_sends_no_release() -> None:
    group = started(A)
    group.leader.stand()
    group.drain()
    effects = hear(group, B, Chosen(1, (Item(CONFIG, encode_config(THREE.removed(A))),)))
    assert group.leader.term is None
    assert not [message for _, message in sends(effects) if isinstance(message, Release)]


def test_last_member_stands_without_a_canvass() -> None:
    """REP-2: the leader has removed itself, and one member is left."""
    two = Config(1, (Member(A, 1), Member(B, 1)), 3)
    group = started(B, two)
    hear(group, A, Chosen(1, (Item(CONFIG, encode_config(two.removed(A))),)))
    group.timeout(Silence())
    group.drain()
    assert events(promise(group, B)) == [LeaderChanged(B)]


def test_the_consent_of_another_life_counts_for_nothing() -> None:
    group = started(A)
    group.timeout(Silence())
    group.drain()
    assert hear(group, C, Consent(2)) == []


def test_a_consent_that_comes_when_there_is_a_leader_is_too_late() -> None:
    group = started(A)
    group.timeout(Silence())
    hear(group, B, Beat(ballot(1, B), 0, 1.0))
    assert hear(group, C, Consent(1)) == []


def test_follower_does_not_stand_while_the_lease_of_its_leader_lasts() -> None:
    group = started(A)
    hear(group, B, Beat(ballot(1, B), 0, 1.0))
    group.now += group.options.suspicion / 2
    group.timeout(Silence())
    assert group.leader.term is None


def test_who_has_no_seat_does_not_stand() -> None:
    group = started(D)
    group.timeout(Silence())
    assert group.drain() == []


def test_a_majority_of_promises_makes_a_leader() -> None:
    group = started(A)
    group.leader.stand()
    group.drain()
    assert events(promise(group, A)) == []
    effects = promise(group, C)
    assert events(effects) == [LeaderChanged(A)]
    assert [to for to, message in sends(effects) if isinstance(message, Beat)] == [B, C]


def test_promise_of_another_incarnation_makes_no_leader() -> None:
    group = started(A)
    group.leader.stand()
    promise(group, A)
    assert group.leader.term is not None
    hear(group, B, Promise(group.leader.term.ballot, 2, 1, 0, (), ()))
    assert not group.leader.term.elected


def test_a_promise_that_an_earlier_life_asked_for_does_not_count() -> None:
    """It reports only from the slot on that was asked for then."""
    group = started(A)
    group.leader.stand()
    promise(group, A)
    assert group.leader.term is not None
    hear(group, B, Promise(group.leader.term.ballot, 1, 7, 0, (), ()))
    assert not group.leader.term.elected


def test_new_leader_proposes_reported_votes_again_and_fills_gaps_with_noops() -> None:
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


def test_candidate_that_is_behind_asks_until_it_is_answered() -> None:
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


# -- proposing --


def test_a_commit_of_three_takes_two_accepts_and_an_accepted_of_each_to_each() -> None:
    """The message count of the steady state is what the protocol needs, and no more."""
    group = leading()
    assert group.leader.term is not None
    mine = group.leader.term.ballot
    group.request(Propose(7, b"x"))
    assert group.drain() == [
        Send(B, Accept(mine, 1, (command(b"x"),), 0), after=0),
        Send(C, Accept(mine, 1, (command(b"x"),), 0), after=0),
        Append(Entry(1, mine, 0, b"x", 0, vouch(1)), 3),
        Send(B, Accepted(mine, 1, 1, 1), after=3),
        Send(C, Accepted(mine, 1, 1, 1), after=3),
        Send(A, Stored(3), after=3),
    ]
    assert sync(group) == []
    assert hear(group, B, Accepted(mine, 1, 1, 1)) == [Emit(Decided(1, b"x", 7), after=0)]


def test_what_is_proposed_while_others_are_on_their_way_shares_an_accept() -> None:
    group = leading()
    assert len(propose(group, 1, b"one")) == 2
    assert propose(group, 2, b"two") == []
    assert propose(group, 3, b"three") == []
    group.timeout(Flush())
    accepts = [message for _, message in sends(group.drain()) if isinstance(message, Accept)]
    assert [accept.items for accept in accepts] == [(command(b"two"), command(b"three"))] * 2


def test_no_more_is_on_its_way_than_the_window_lets() -> None:
    group = leading(options=GroupOptions(window_slots=4, compare_every=0.0))
    for token in range(9):
        propose(group, token, b"x")
    group.timeout(Flush())
    assert group.leader.term is not None
    assert len(group.leader.term.in_flight) == 4
    assert len(group.leader.term.queue) == 5


def test_who_does_not_lead_proposes_nothing() -> None:
    assert propose(started(A), 1, b"x") == []


def test_proposals_after_a_membership_wait_until_it_is_decided() -> None:
    group = leading()
    assert group.leader.term is not None
    added = Item(CONFIG, encode_config(THREE.added(Member(D, 9))))
    group.leader.term.queue.append((-1, added))
    propose(group, 1, b"x")
    group.timeout(Flush())
    assert group.leader.term.next == 2
    sync(group)
    effects = hear(group, B, Accepted(group.leader.term.ballot, 1, 1, 1))
    assert group.state.membership.config.nodes() == [A, B, C, D]
    # Two of four members have promised: it asks the other two.
    asked = [to for to, message in sends(effects) if isinstance(message, Prepare)]
    assert asked == [C, D]
    assert not any(isinstance(message, Accept) for _, message in sends(effects))
    effects = hear(group, C, Promise(group.leader.term.ballot, 1, 1, 0, (), ()))
    assert (D, Accept(group.leader.term.ballot, 2, (command(b"x"),), 1)) in sends(effects)


def test_what_is_not_answered_is_said_again_to_who_has_not_answered() -> None:
    group = leading()
    assert group.leader.term is not None
    propose(group, 1, b"x")
    hear(group, C, Accepted(group.leader.term.ballot, 1, 1, 1))
    group.timeout(Unanswered())
    again = [to for to, message in sends(group.drain()) if isinstance(message, Accept)]
    assert again == [B]


def test_what_moves_is_not_said_again() -> None:
    group = leading()
    assert group.leader.term is not None
    propose(group, 1, b"x")
    sync(group)
    hear(group, C, Accepted(group.leader.term.ballot, 1, 1, 1))
    propose(group, 2, b"y")
    group.timeout(Unanswered())
    assert not any(isinstance(message, Accept) for _, message in sends(group.drain()))


# -- stepping down --


@pytest.mark.parametrize(
    "message", [Reject(ballot(9, C)), Beat(ballot(9, C), 0, 1.0), Accepted(ballot(9, C), 1, 1, 1)]
)
def test_higher_ballot_ends_a_term(message: Reject | Beat | Accepted) -> None:
    group = leading()
    assert LeaderChanged(NodeId("")) in events(hear(group, C, message))
    assert group.leader.term is None
    assert propose(group, 1, b"x") == []


def test_a_leader_that_was_rejected_may_stand_again_at_once() -> None:
    """The leader that it heard last is itself."""
    group = leading()
    hear(group, C, Reject(ballot(9, C)))
    group.timeout(Silence())
    assert [message for _, message in sends(group.drain())] == [Canvass(1), Canvass(1)]


def test_an_elected_candidate_that_was_rejected_promises_another_one_at_once() -> None:
    """REP-5: if it waited for its own lease, both candidates could give up again and again."""
    group = started(A)
    group.leader.stand()
    group.drain()
    promise(group, A)
    assert group.leader.term is not None
    vote = Vote(1, ballot(0), command(b"x"))
    hear(group, B, Promise(group.leader.term.ballot, 1, 1, 0, (vote,), ()))
    assert (group.leader.term.elected, group.leader.term.acting) == (True, False)
    hear(group, C, Reject(ballot(9, C)))
    assert any(
        isinstance(each, Promise) for _, each in sends(hear(group, C, Prepare(ballot(9, C), 1)))
    )


def test_value_of_another_leader_is_not_reported_as_own() -> None:
    group = leading()
    propose(group, 7, b"mine")
    effects = hear(group, C, Chosen(1, (command(b"theirs"),)))
    assert Decided(1, b"theirs", -1) in events(effects)
    assert group.leader.term is None


def test_own_value_that_a_peer_reports_as_chosen_keeps_its_token() -> None:
    group = leading()
    propose(group, 7, b"mine")
    effects = hear(group, C, Chosen(1, (command(b"mine"),)))
    assert events(effects) == [Decided(1, b"mine", 7)]
    assert group.leader.term is not None


def test_a_leader_that_hands_over_tells_all_and_leads_no_more() -> None:
    group = leading()
    group.request(HandOver(C))
    effects = group.drain()
    assert group.leader.term is None
    told = [(to, message) for to, message in sends(effects) if isinstance(message, Release)]
    assert told == [(B, Release(ballot(1), C)), (C, Release(ballot(1), C))]


def test_removed_leader_resigns() -> None:
    group = leading()
    assert group.leader.term is not None
    group.leader.term.queue.append((-1, Item(CONFIG, encode_config(THREE.removed(A)))))
    group.leader.proceed()
    sync(group)
    effects = hear(group, B, Accepted(ballot(1), 1, 1, 1))
    assert (B, Release(ballot(1), NodeId(""))) in sends(effects)
    assert group.leader.term is None
    assert not group.state.membership.is_member


def test_a_leader_that_no_majority_hears_gives_up() -> None:
    group = leading()
    group.now += 2 * group.options.suspicion + 0.1
    group.timeout(BeatDue())
    assert group.leader.term is None


def test_elected_leader_without_answers_steps_down_before_it_has_finished_old_slots() -> None:
    """Otherwise its followers would wait for a leader that can decide nothing."""
    group = started(A)
    group.leader.stand()
    group.now += 10 * group.options.suspicion  # it was far behind
    begun = Promise(ballot(1), 1, 1, 0, (Vote(1, ballot(0, C), command(b"old")),), ())
    hear(group, A, Promise(ballot(1), 1, 1, 0, (), ()))
    hear(group, B, begun)
    assert group.leader.term is not None
    assert group.leader.term.elected
    assert not group.leader.term.acting
    group.now += group.options.suspicion
    group.timeout(BeatDue())
    assert group.leader.term is not None
    group.now += 0.1
    group.timeout(BeatDue())
    assert group.leader.term is None


# -- the lease --


def answered(
    group: Paxos, node: NodeId, sent: float, incarnation: int = 1, bound: float = OPTIONS.suspicion
) -> None:
    assert group.leader.term is not None
    hear(group, node, Heard(group.leader.term.ballot, sent, incarnation, 0, bound))


@pytest.mark.parametrize("bound", [OPTIONS.suspicion, OPTIONS.suspicion / 2, 9.0])
def test_a_lease_counts_from_the_beat_that_a_majority_has_answered(bound: float) -> None:
    """If the nodes have different suspicion times, the shorter one counts."""
    group = leading()
    sent = group.now = group.now + 1.0
    group.timeout(BeatDue())
    assert not group.leads(group.now)
    group.now += 0.5
    answered(group, B, sent, bound=bound)
    lease = min(bound, OPTIONS.suspicion) * 0.99 / 1.01
    assert group.leader.lease_ends() == sent + lease
    assert group.leads(sent + lease - 0.001)
    assert not group.leads(sent + lease)


def test_the_answer_of_another_life_is_no_lease() -> None:
    group = leading()
    group.now += 1.0
    group.timeout(BeatDue())
    answered(group, B, group.now, life=2)
    assert not group.leads(group.now)


def test_lease_must_also_hold_for_a_membership_in_flight() -> None:
    group = leading(config=Config(1, THREE.members[:2], 3))
    assert group.leader.term is not None
    group.now += 1.0
    group.timeout(BeatDue())
    answered(group, B, group.now)
    assert group.leads(group.now)
    three = THREE.added(Member(D, 1)).members
    group.leader.term.changing = 1, Config(2, (*three, Member(B, 7)), 5)
    assert not group.leads(group.now)


def test_nobody_else_is_needed_for_the_lease_of_who_is_alone() -> None:
    alone = unstarted(A, Config(1, (Member(A, 1),), 1))
    alone.start()
    assert alone.leads(1e9)


def test_founder_that_restarts_after_it_added_a_member_does_not_lead_alone() -> None:
    """The last record of its log is a membership of two."""
    one = Config(1, (Member(A, 1),), 3)
    group = unstarted(A, one)
    two = one.added(Member(B, 5))
    group.restore(Born(1, one))
    group._records.last = 2
    group.restore(Entry(1, ballot(1), CONFIG, encode_config(two), 0, vouch(1)))
    group.start()
    effects = group.drain()
    assert group.state.membership.config == two
    assert group.leader.term is None
    assert any(isinstance(each, Later) and each.timer == Silence() for each in effects)
