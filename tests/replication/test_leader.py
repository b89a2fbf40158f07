"""REP-1: a leader finishes old slots, proposes new values, and knows when to step down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncecast.kernel.protocol import Append, Emit, Later, NodeId, Send
from oncecast.replication.events import Decided, HandOver, LeaderChanged, Propose
from oncecast.replication.messages import (
    CONFIG,
    Accept,
    Accepted,
    Ahead,
    Beat,
    BeatDue,
    Born,
    Canvass,
    Chosen,
    Entry,
    Flush,
    Heard,
    Item,
    Piece,
    Prepare,
    Promise,
    Promised,
    Reject,
    Release,
    Silence,
    Stored,
    Unanswered,
    Vote,
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
    accepted_slots,
    ballot,
    command,
    events,
    expire,
    hear,
    leading,
    promise,
    records,
    sends,
    started,
    steady,
    sync,
    unstarted,
    vouch,
)
from tests.replication.test_election import candidate

NO_NODE = NodeId("")
SUSPICION, RESEND = OPTIONS.suspicion, OPTIONS.resend
PATIENCE = SUSPICION * 1.125
SLOWEST_LINK = 8 * 1024 * 1024  # bytes per second
X, Y = command(b"x"), command(b"y")


def propose(group: Paxos, token: int, value: bytes) -> list[Accept]:
    group.request(Propose(token, value))
    return [message for _, message in sends(group.drain()) if isinstance(message, Accept)]


def quiet() -> Paxos:
    """Return a leader that has promises from all members and awaits no answers."""
    group = leading()
    promise(group, C)
    assert expire(group, Unanswered()) == []
    return group


def proposing(*values: bytes) -> Paxos:
    """Return a leader with proposals in flight for the slots from 2 on."""
    group = quiet()
    hear(group, B, Chosen(1, (X,)))
    for token, value in enumerate(values):
        group.request(Propose(token, value))
    expire(group, Flush())
    assert [slot for slot, _ in in_flight(group)[0]] == list(range(2, 2 + len(values)))
    return group


def in_flight(group: Paxos) -> tuple[list[tuple[int, int]], int]:
    assert group.leader.term is not None
    return list(group.leader.term.in_flight), group.leader.term.in_flight_bytes


def test_new_leader_proposes_nothing_after_an_undecided_membership() -> None:
    """REP-2: the voters of later slots are unknown until it is decided."""
    config = THREE.added(Member(D, 1))
    change = Item(CONFIG, encode_config(config))
    votes = [Vote(slot, ballot(0, C), command(b"x")) for slot in (1, 2, 3)]
    group = candidate(votes[0], Vote(2, ballot(0, C), change), votes[2])
    (accept,) = [each for to, each in sends(group.drain()) if isinstance(each, Accept) and to == B]
    assert (accept.slot, accept.items) == (1, (command(b"x"), change))
    assert group.leader.term is not None
    assert group.leader.term.changing == (2, config)


def test_proposal_contains_as_many_items_as_its_byte_limit_allows() -> None:
    """REP-1: an item that begins within the limit is sent whole."""
    for sizes, together in (((1, 9, 5), 2), ((1, 8, 5), 3), ((10, 1), 1), ((11, 1), 1)):
        votes = [Vote(at, ballot(0, C), command(bytes(size))) for at, size in enumerate(sizes, 1)]
        group = candidate(*votes, accept_bytes=10)
        accepts = [each for to, each in sends(group.drain()) if isinstance(each, Accept)]
        assert len(accepts[0].items) == together


def test_leader_proposes_a_value_if_any_byte_of_the_window_is_free() -> None:
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


def test_leader_that_steps_down_sets_no_timer_for_answers() -> None:
    """REP-1"""
    group = leading()
    group.state.progress.certain = 1
    group.request(Propose(1, b"mine"))
    assert group.leader.term is None
    assert [type(each.timer) for each in group.drain() if isinstance(each, Later)] == [Silence]


def test_promise_is_complete_if_all_its_lost_slots_are_applied() -> None:
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


# -- proposing --


def test_proposals_after_a_membership_change_wait_until_the_change_is_decided() -> None:
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
    # Two of four members have promised, so the leader asks the other two.
    asked = [to for to, message in sends(effects) if isinstance(message, Prepare)]
    assert asked == [C, D]
    assert not any(isinstance(message, Accept) for _, message in sends(effects))
    effects = hear(group, C, Promise(group.leader.term.ballot, 1, 1, 0, (), ()))
    assert (D, Accept(group.leader.term.ballot, 2, (command(b"x"),), 1)) in sends(effects)


def test_leader_sends_its_proposal_before_and_its_vote_after_the_value_is_on_disk() -> None:
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


def test_replica_that_does_not_lead_proposes_nothing() -> None:
    group = started(A)
    group.request(Propose(1, b"x"))
    assert group.drain() == []
    assert expire(group, Flush()) == []
    group.leader.stand()
    group.drain()
    group.request(Propose(1, b"x"))  # the replica is only a candidate
    assert group.drain() == []


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


@pytest.mark.parametrize(
    "options",
    [
        GroupOptions(compare_every=0.0, window_slots=3),
        GroupOptions(compare_every=0.0, window_bytes=300),
    ],
)
def test_window_limits_the_values_in_flight(options: GroupOptions) -> None:
    """REP-5: the window is limited in slots and in bytes."""
    group = leading(options=options)
    for token in range(6):
        group.request(Propose(token, bytes(100)))
    first = group.drain()
    group.timeout(Flush())
    assert accepted_slots(first) + accepted_slots(group.drain()) == [1, 2, 3]
    sync(group)
    assert accepted_slots(hear(group, B, Accepted(ballot(1), 1, 2, 1))) == [4, 5]


def test_accept_is_filled_up_to_its_byte_limit() -> None:
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


# -- resending --


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


def test_leader_sets_only_one_timer_for_unanswered_proposals() -> None:
    group = quiet()
    group.request(Propose(1, b"x"))
    group.request(Propose(2, b"y"))
    group.timeout(Flush())
    waits = [each for each in group.drain() if isinstance(each, Later)]
    assert [each.timer for each in waits].count(Unanswered()) == 1


def test_follower_does_not_resend_proposals() -> None:
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
    """A later slot may hold a vote for an earlier leader's value."""
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


# -- stepping down --


def test_leader_steps_down_if_it_cannot_read_its_value_in_flight() -> None:
    """REP-1: the leader could not resend the value, so the group would never complete the slot."""
    group = proposing(b"a")
    sync(group)
    group.state.values.items.clear()
    group.state.values.index.cut(2)
    assert sends(expire(group, Unanswered())) == [
        (B, Release(ballot(1), NodeId(""))),
        (C, Release(ballot(1), NodeId(""))),
    ]
    assert group.leader.term is None


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


def test_leader_steps_down_when_it_sees_a_vote_with_a_higher_ballot() -> None:
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


def test_rejected_leader_ends_its_own_lease_and_waits_before_the_next_election() -> None:
    group = steady(leading())
    assert hear(group, B, Reject(ballot(9, C))) == [
        Emit(LeaderChanged(NO_NODE), after=0),
        Later(PATIENCE, Silence()),
        Later(RESEND * 2.5, Silence()),
    ]
    assert group.state.following.heard == group.now - SUSPICION
    group.leader.stand()
    assert records(group.drain()) == [Promised(ballot(10), vouch(0))]


@pytest.mark.parametrize("round", [0, 1])
def test_rejection_without_a_higher_ballot_is_ignored(round: int) -> None:
    group = leading()
    assert group.leader.term is not None
    assert hear(group, B, Reject(ballot(round))) == []
    assert group.leader.term is not None


def test_leader_that_follows_a_higher_ballot_reports_the_change_once() -> None:
    group = leading()
    assert events(hear(group, C, Beat(ballot(9, C), 0, 1.0))) == [
        LeaderChanged(NO_NODE),
        LeaderChanged(C),
    ]
    assert events(hear(group, C, Beat(ballot(9, C), 0, 2.0))) == []
    assert group.state.following.ballot == ballot(9, C)


def test_leader_does_not_step_down_for_its_own_beat() -> None:
    """An old message from the same term changes nothing."""
    group = leading()
    assert group.leader.term is not None
    hear(group, A, Beat(group.leader.term.ballot, 0, 1.0))
    assert group.leader.term is not None


@pytest.mark.parametrize("slot", [2, 3, 4])
def test_leader_steps_down_when_another_value_was_chosen_instead_of_its_proposal(slot: int) -> None:
    group = proposing(b"a", b"b", b"c")
    hear(group, B, Chosen(slot, (command(b"other"),)))
    assert group.leader.term is None
    assert group.leader.tokens == {}


@pytest.mark.parametrize("slot", [1, 5])
def test_leader_continues_when_a_slot_it_did_not_propose_was_chosen(slot: int) -> None:
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


def test_candidate_leads_once_it_has_every_slot_known_to_the_members() -> None:
    """REP-5: otherwise the candidate would wait forever, because no message is due."""
    group = started(A)
    group.leader.stand()
    promise(group, A)
    promise(group, B, known=9)
    assert group.leader.term is not None
    assert not group.leader.term.acting
    hear(group, B, Ahead(9, 10, 0, THREE, 1))
    hear(group, B, Piece(9, 0, b"state", True))
    assert group.leader.term.acting


def test_candidate_without_promises_asks_for_a_leader_again() -> None:
    """REP-5: otherwise a removed candidate would send unanswered Prepares forever."""
    group = started(A)
    group.leader.stand()
    promise(group, A)
    group.now += 2 * group.options.suspicion
    assert {type(message) for _, message in sends(expire(group, Unanswered()))} == {Prepare}
    group.now += 0.01
    assert sends(expire(group, Unanswered())) == []
    group.now += 2 * group.options.suspicion
    assert {type(message) for _, message in sends(expire(group, Silence()))} == {Canvass}


def test_candidate_with_a_majority_of_promises_stays_a_candidate_while_it_fetches_slots() -> None:
    group = started(A)
    group.leader.stand()
    promise(group, A)
    promise(group, B, known=9)
    group.now += 3 * group.options.suspicion
    expire(group, Unanswered())
    assert group.leader.term is not None


def test_votes_in_a_late_promise_are_proposed() -> None:
    """Such a value may have been chosen."""
    group = leading()
    late = Promise(ballot(1), 1, 1, 0, (Vote(1, ballot(0, C), X),), ())
    assert accepted_slots(hear(group, C, late)) == [1]


@pytest.mark.parametrize(
    "message", [Reject(ballot(9, C)), Beat(ballot(9, C), 0, 1.0), Accepted(ballot(9, C), 1, 1, 1)]
)
def test_higher_ballot_ends_the_term(message: Reject | Beat | Accepted) -> None:
    group = leading()
    assert LeaderChanged(NodeId("")) in events(hear(group, C, message))
    assert group.leader.term is None
    assert propose(group, 1, b"x") == []


def test_rejected_leader_may_become_a_candidate_again_at_once() -> None:
    """The last leader that it followed is itself."""
    group = leading()
    hear(group, C, Reject(ballot(9, C)))
    group.timeout(Silence())
    assert [message for _, message in sends(group.drain())] == [Canvass(1), Canvass(1)]


def test_rejected_leader_makes_promises_to_another_candidate_at_once() -> None:
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


def test_value_from_another_leader_is_reported_without_a_token() -> None:
    group = leading()
    propose(group, 7, b"mine")
    effects = hear(group, C, Chosen(1, (command(b"theirs"),)))
    assert Decided(1, b"theirs", -1) in events(effects)
    assert group.leader.term is None


def test_own_value_keeps_its_token_when_a_peer_reports_it_as_chosen() -> None:
    group = leading()
    propose(group, 7, b"mine")
    effects = hear(group, C, Chosen(1, (command(b"mine"),)))
    assert events(effects) == [Decided(1, b"mine", 7)]
    assert group.leader.term is not None


def test_removed_leader_steps_down() -> None:
    group = leading()
    assert group.leader.term is not None
    group.leader.term.queue.append((-1, Item(CONFIG, encode_config(THREE.removed(A)))))
    group.leader.proceed()
    sync(group)
    effects = hear(group, B, Accepted(ballot(1), 1, 1, 1))
    assert (B, Release(ballot(1), NodeId(""))) in sends(effects)
    assert group.leader.term is None
    assert not group.state.membership.is_member


def test_elected_leader_steps_down_if_it_gets_no_answers_for_old_slots() -> None:
    """Otherwise its followers would wait for a leader that can decide nothing."""
    group = started(A)
    group.leader.stand()
    group.now += 10 * group.options.suspicion  # the new leader was far behind
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


def test_leader_steps_down_if_the_slot_for_a_new_command_was_already_chosen() -> None:
    """Only a leader with a higher ballot can have proposed it."""
    for known in (0, 1):
        group = quiet()
        group.state.progress.certain = known
        group.request(Propose(1, b"mine"))
        assert (group.leader.term is None) == bool(known)


# -- heartbeats and the lease --


def answered(
    group: Paxos, node: NodeId, sent: float, incarnation: int = 1, bound: float = OPTIONS.suspicion
) -> None:
    assert group.leader.term is not None
    hear(group, node, Heard(group.leader.term.ballot, sent, incarnation, 0, bound))


@pytest.mark.parametrize("bound", [OPTIONS.suspicion, OPTIONS.suspicion / 2, 9.0])
def test_lease_starts_at_the_beat_that_a_majority_has_answered(bound: float) -> None:
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


def test_restarted_founder_does_not_lead_alone_after_it_added_a_member() -> None:
    """The last record in its log is a two-member membership."""
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


def test_leader_does_not_step_down_for_silence_before_a_membership_change() -> None:
    group = quiet()
    group.now += 10.0
    group.reconfiguration.reconfigured(THREE)
    assert Later(0.0, BeatDue()) in group.drain()
    assert expire(group, BeatDue()) != []
    assert group.leader.term is not None


def test_lease_is_limited_if_the_leader_is_not_in_the_membership() -> None:
    group = quiet()
    assert group.leader.term is not None
    other = Config(2, (Member(B, 1),), 1)
    assert group.leader._lease(group.leader.term, other) == group.leader.term.since


def test_heartbeat_sends_beats_and_schedules_the_next_one() -> None:
    group = leading()
    group.now += 1.0
    assert expire(group, BeatDue()) == [
        Send(B, Beat(ballot(1), 0, 101.0), after=0),
        Send(C, Beat(ballot(1), 0, 101.0), after=0),
        Later(OPTIONS.heartbeat, BeatDue()),
    ]
    assert group.state.following.heard == 101.0


def test_leader_without_answers_from_a_majority_steps_down() -> None:
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


def test_lease_needs_a_majority_and_starts_when_the_beat_was_sent() -> None:
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


def test_answers_for_another_ballot_or_incarnation_do_not_extend_the_lease() -> None:
    group = leading()
    hear(group, B, Heard(ballot(2), 100.0, 1, 0, SUSPICION))
    hear(group, B, Heard(ballot(1), 100.0, 2, 0, SUSPICION))  # B answers as another incarnation
    assert not group.leads(group.now)
    assert started().leader.lease_ends() == 0.0


def test_shorter_suspicion_time_on_a_follower_shortens_the_lease() -> None:
    group = leading()
    expire(group, BeatDue())
    hear(group, B, Heard(ballot(1), 100.0, 1, 0, SUSPICION / 2))
    assert group.leader.lease_ends() == 100.0 + OPTIONS.lease(SUSPICION / 2)


def test_lone_leader_needs_no_answers_to_keep_its_lease() -> None:
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
    assert group.leader.term is None
    assert group.state.following.heard == group.now - SUSPICION


@pytest.mark.parametrize("successor", [A, D])
def test_leader_hands_over_only_to_another_member(successor: NodeId) -> None:
    group = leading()
    group.request(HandOver(successor))
    assert group.drain() == []
    follower = started()
    follower.request(HandOver(C))
    assert follower.drain() == []
