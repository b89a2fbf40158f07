"""Synod settles one value for each number, whichever node leads."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.coordination.protocols.events import CaughtUp, Decide, Settled, ViewChanged
from oncecast.coordination.protocols.synod import Synod
from oncecast.coordination.protocols.synod_messages import (
    Accept,
    Accepted,
    Behind,
    Chosen,
    Column,
    Inquire,
    Minuted,
    Minutes,
    Petition,
    Prepare,
    Promise,
    Promised,
    Refused,
    SynodMessage,
    Unanswered,
    Vote,
    possible,
)
from oncecast.kernel.protocol import (
    Append,
    Cancel,
    Effect,
    Emit,
    Later,
    NodeId,
    Send,
    Snapshot,
    Trim,
    Value,
)
from oncecast.replication.ballot import Ballot
from tests.dice import HighDice, LowDice

A, B, C, GUEST = NodeId("a"), NodeId("b"), NodeId("c"), NodeId("guest")
KEY = "series", 1
LOW, HIGH = Ballot(1, A), Ballot(2, B)


def led_by(leader: NodeId) -> tuple[NodeId, ...]:
    """Return a view in which `leader` is the lowest acceptor, after a lower non-acceptor."""
    return tuple(
        node for node in (NodeId("Guest"), A, B, C) if node >= leader or node not in (A, B)
    )


def synod(me: NodeId = A, leader: NodeId = A) -> Synod:
    made = Synod(me, Random(0), acceptors=[A, B, C])
    made.observe(ViewChanged(led_by(leader)))
    made.drain()
    return made


def sent(effects: list[Effect], kind: type[Value] = Value) -> list[tuple[NodeId, Value]]:
    found = [(effect.to, effect.message) for effect in effects if isinstance(effect, Send)]
    return [each for each in found if isinstance(each[1], kind)]


def leading() -> Synod:
    """Return a leader with promises from A and B."""
    leader = synod()
    leader.receive(GUEST, Petition(*KEY, "x"))
    leader.receive(A, Promised(LOW, (), ()))
    leader.receive(B, Promised(LOW, (), ()))
    return leader


def test_requester_petitions_the_leader_and_then_all_acceptors() -> None:
    """DDS-5"""
    requester = synod(GUEST, leader=B)
    requester.request(Decide(*KEY, "x"))
    assert sent(requester.drain()) == [(B, Petition(*KEY, "x"))]
    requester.timeout(Unanswered(*KEY))
    assert sent(requester.drain()) == [(node, Petition(*KEY, "x")) for node in (A, B, C)]


@pytest.mark.parametrize(("dice", "share"), [(LowDice(), 0.75), (HighDice(), 1.25)])
def test_petition_is_repeated_after_half_a_second_and_an_inquiry_after_two_seconds(
    dice: Random, share: float
) -> None:
    """DDS-5: both times vary by up to a quarter."""
    requester = Synod(GUEST, dice, acceptors=[A, B, C])
    requester.observe(ViewChanged((A,)))
    assert requester.drain() == [Send(A, Inquire()), Later(2.0 * share, Behind())]
    requester.request(Decide(*KEY, "x"))
    again = Later(0.5 * share, Unanswered(*KEY))
    assert requester.drain() == [Send(A, Petition(*KEY, "x")), again]
    requester.receive(A, Chosen(*KEY, "y"))
    assert requester.drain() == [Cancel(Unanswered(*KEY)), Emit(Settled(*KEY, "y"))]


def test_inquiry_is_sent_only_by_a_follower_with_a_leader() -> None:
    for view in ((A, B), (GUEST,)):
        made = Synod(A, LowDice(), acceptors=[A, B])
        made.observe(ViewChanged(view))
        made.drain()
        made.timeout(Behind())
        assert made.drain() == [Later(1.5, Behind())]


@pytest.mark.parametrize(("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4)])
def test_majority_is_more_than_half(count: int, majority: int) -> None:
    made = Synod(A, Random(0), acceptors=[NodeId(f"n{index}") for index in range(count)])
    assert made.majority == majority


def test_default_limits_bound_the_memory_and_the_log() -> None:
    made = Synod(A, Random(0), acceptors=[A])
    assert (made.values_max, made.snapshot_every) == (100_000, 10_000)


def test_petition_goes_to_the_next_leader_when_the_leader_changes() -> None:
    """DDS-5"""
    requester = synod(GUEST, leader=A)
    requester.request(Decide(*KEY, "x"))
    requester.drain()
    requester.observe(ViewChanged(led_by(B)))
    assert sent(requester.drain()) == [(B, Inquire()), (B, Petition(*KEY, "x"))]


def test_new_node_learns_settled_numbers_in_one_message() -> None:
    """DDS-5"""
    leader, newcomer = synod(A), synod(GUEST)
    for number in (1, 3):
        leader.receive(A, Chosen("series", number, "x"))
    leader.drain()
    newcomer.timeout(Behind())
    assert sent(newcomer.drain()) == [(A, Inquire())]
    leader.receive(GUEST, Inquire())
    minuted = Minuted((Column("series", 3, ((2, 2),)),))
    assert sent(leader.drain()) == [(GUEST, minuted)]
    newcomer.receive(A, minuted)
    newcomer.receive(A, minuted)
    assert newcomer.drain() == [Emit(CaughtUp())]
    assert [newcomer.is_settled("series", number) for number in (1, 2, 3)] == [True, False, True]


def test_leader_promises_itself_on_disk_before_it_asks_for_promises() -> None:
    leader = synod()
    leader.receive(GUEST, Petition(*KEY, "x"))
    effects = leader.drain()
    assert effects[0] == Append(Promise(LOW), 1)
    assert effects[1:] == [Send(node, Prepare(LOW), after=1) for node in (A, B, C)]


def test_leader_proposes_only_with_promises_from_a_majority() -> None:
    """DDS-5"""
    leader = synod()
    leader.receive(GUEST, Petition(*KEY, "x"))
    leader.receive(A, Promised(LOW, (), ()))
    assert sent(leader.drain(), Accept) == []
    leader.receive(B, Promised(LOW, (), ()))
    accept = Accept(LOW, *KEY, "x")
    assert sent(leader.drain()) == [(A, accept), (B, accept), (C, accept)]


def test_choice_needs_a_majority_and_is_announced_to_all_nodes() -> None:
    """DDS-5"""
    leader = leading()
    leader.observe(ViewChanged((A, B, GUEST)))
    leader.drain()
    leader.receive(B, Accepted(LOW, *KEY))
    leader.receive(B, Accepted(LOW, *KEY))
    assert leader.drain() == []
    leader.receive(C, Accepted(LOW, *KEY))
    assert sent(leader.drain()) == [(node, Chosen(*KEY, "x")) for node in (A, B, C, GUEST)]


def test_leader_proposes_the_value_voted_for_under_the_highest_ballot() -> None:
    """DDS-5: a value that may be settled is not replaced."""
    leader = synod()
    leader.receive(B, Refused(HIGH))
    leader.receive(GUEST, Petition(*KEY, "mine"))
    ballot = Ballot(3, A)
    leader.receive(B, Promised(ballot, (Vote(*KEY, "older", LOW),), ()))
    leader.receive(C, Promised(ballot, (Vote(*KEY, "newer", HIGH),), ()))
    assert sent(leader.drain(), Accept)[0] == (A, Accept(ballot, *KEY, "newer"))


def test_leader_proposes_nothing_for_a_settled_number_with_an_unknown_value() -> None:
    leader = synod()
    leader.receive(GUEST, Petition(*KEY, "mine"))
    leader.receive(B, Promised(LOW, (), (Column("series", 1, ()),)))
    leader.receive(C, Promised(LOW, (), ()))
    assert sent(leader.drain(), Accept) == []


def test_repeated_petition_resends_the_proposal_and_a_second_requester_waits() -> None:
    leader = leading()
    leader.drain()
    leader.receive(B, Petition(*KEY, "y"))
    assert leader.drain() == []
    for asker, value in ((GUEST, "x"), (B, "y")):
        leader.receive(asker, Petition(*KEY, value))
        assert sent(leader.drain()) == [(node, Accept(LOW, *KEY, "x")) for node in (A, B, C)]


def test_promise_for_another_ballot_and_late_promises_are_not_counted() -> None:
    """DDS-5"""
    leader = synod()
    leader.receive(GUEST, Petition(*KEY, "x"))
    leader.drain()
    for node in (B, C):
        leader.receive(node, Promised(HIGH, (), (Column("series", 9, ()),)))
    assert leader.drain() == []
    for node in (A, B):
        leader.receive(node, Promised(LOW, (), ()))
    leader.drain()
    leader.receive(C, Promised(LOW, (Vote("series", 2, "late", LOW),), (Column("other", 9, ()),)))
    assert leader.drain() == []
    leader.receive(GUEST, Petition("series", 2, "y"))
    assert sent(leader.drain())[0] == (A, Accept(LOW, "series", 2, "y"))


def test_vote_under_another_ballot_is_not_counted() -> None:
    """DDS-5"""
    leader = leading()
    leader.drain()
    leader.receive(B, Accepted(HIGH, *KEY))
    leader.receive(C, Accepted(LOW, *KEY))
    assert leader.drain() == []
    leader.receive(B, Accepted(LOW, *KEY))
    assert sent(leader.drain(), Chosen)


def test_leader_that_learns_of_a_choice_does_not_announce_it_again() -> None:
    leader = leading()
    leader.receive(C, Chosen(*KEY, "x"))
    leader.drain()
    for node in (B, C):
        leader.receive(node, Accepted(LOW, *KEY))
    assert leader.drain() == []


def test_petitioned_leader_starts_a_higher_ballot_if_it_promised_another_leader() -> None:
    leader = leading()
    leader.receive(B, Prepare(HIGH))
    leader.drain()
    leader.receive(GUEST, Petition(*KEY, "x"))
    assert sent(leader.drain())[0] == (A, Prepare(Ballot(3, A)))


def test_refused_leader_starts_a_higher_ballot_on_the_next_petition() -> None:
    leader = leading()
    leader.receive(C, Refused(HIGH))
    leader.drain()
    leader.receive(GUEST, Petition(*KEY, "x"))
    assert sent(leader.drain())[0] == (A, Prepare(Ballot(3, A)))


def test_only_the_leader_proposes() -> None:
    follower = synod(B, leader=A)
    follower.receive(GUEST, Petition(*KEY, "x"))
    assert follower.drain() == []


def test_vote_is_on_disk_before_it_is_sent() -> None:
    acceptor = synod(B)
    acceptor.receive(A, Accept(LOW, *KEY, "x"))
    vote = Vote(*KEY, "x", LOW)
    assert acceptor.drain() == [Append(vote, 1), Send(A, Accepted(LOW, *KEY), after=1)]
    acceptor.receive(A, Accept(LOW, *KEY, "x"))
    assert acceptor.drain() == [Send(A, Accepted(LOW, *KEY), after=1)]


def test_acceptor_refuses_lower_ballots() -> None:
    """DDS-5: two leaders are safe."""
    acceptor = synod(C)
    acceptor.receive(B, Prepare(HIGH))
    acceptor.drain()
    acceptor.receive(A, Prepare(LOW))
    acceptor.receive(A, Accept(LOW, *KEY, "x"))
    assert sent(acceptor.drain()) == [(A, Refused(HIGH)), (A, Refused(HIGH))]


def test_promise_contains_votes_and_settled_numbers() -> None:
    acceptor = synod(C)
    for number in (1, 2):
        acceptor.receive(A, Accept(LOW, "series", number, "x"))
    acceptor.receive(A, Chosen(*KEY, "y"))
    acceptor.drain()
    acceptor.receive(B, Prepare(HIGH))
    votes, columns = (Vote("series", 2, "x", LOW),), (Column("series", 1, ()),)
    assert sent(acceptor.drain()) == [(B, Promised(HIGH, votes, columns))]


def test_restarted_acceptor_keeps_its_promises_votes_and_settled_values() -> None:
    before = synod(C)
    before.receive(B, Prepare(LOW))
    before.receive(B, Accept(HIGH, "series", 2, "x"))
    before.receive(B, Chosen(*KEY, "y"))
    after = synod(C)
    for effect in before.drain():
        if isinstance(effect, Append) and isinstance(effect.record, Promise | Vote | Settled):
            after.restore(effect.record)
    assert (after.promised, after.votes, after.values) == (
        before.promised,
        before.votes,
        before.values,
    )


def test_restarted_acceptor_refuses_ballots_below_its_promise() -> None:
    """DDS-5"""
    acceptor = synod(C)
    acceptor.restore(Promise(HIGH))
    acceptor.receive(A, Accept(LOW, *KEY, "x"))
    assert acceptor.drain() == [Send(A, Refused(HIGH))]


def test_acceptor_takes_a_snapshot_every_few_records() -> None:
    """DDS-5"""
    acceptor = Synod(C, Random(0), acceptors=[A, B, C], snapshot_every=3)
    acceptor.receive(A, Prepare(LOW))
    acceptor.receive(A, Accept(LOW, "series", 2, "x"))
    acceptor.drain()
    acceptor.receive(A, Chosen(*KEY, "y"))
    vote, column = Vote("series", 2, "x", LOW), Column("series", 1, ())
    minutes = Minutes(LOW, (vote,), (column,), (Settled(*KEY, "y"),))
    saved = [Append(Settled(*KEY, "y"), 3), Snapshot(minutes, 3), Trim("synod", 4)]
    # The event does not wait: a majority has the value on disk.
    assert acceptor.drain() == [*saved, Emit(Settled(*KEY, "y"))]
    for number, due in ((3, False), (4, False), (5, True), (6, False), (7, False), (8, True)):
        acceptor.receive(A, Chosen("series", number, "z"))
        assert any(isinstance(each, Snapshot) for each in acceptor.drain()) == due

    again = Synod(C, Random(0), acceptors=[A, B, C], snapshot_every=3)
    again.restore(minutes)
    again.receive(B, Prepare(HIGH))
    again.receive(GUEST, Petition(*KEY, "x"))
    assert again.drain() == [
        Append(Promise(HIGH), 1),
        Send(B, Promised(HIGH, (vote,), (column,)), after=1),
        Send(GUEST, Chosen(*KEY, "y"), after=1),
    ]
    again.receive(A, Prepare(Ballot(1, B)))
    assert again.drain() == [Send(A, Refused(HIGH), after=1)]
    again.receive(B, Accept(HIGH, "series", 3, "z"))
    effects = again.drain()  # restored records count towards a snapshot
    assert [type(each) for each in effects] == [Append, Snapshot, Trim, Send]


def test_promise_in_a_snapshot_is_restored() -> None:
    acceptor = synod(C)
    acceptor.restore(Minutes(HIGH, (), (), ()))
    acceptor.receive(A, Prepare(LOW))
    assert acceptor.drain() == [Send(A, Refused(HIGH))]


def test_node_that_is_not_an_acceptor_makes_no_promises() -> None:
    guest = synod(GUEST)
    guest.receive(A, Prepare(LOW))
    guest.receive(A, Accept(LOW, *KEY, "x"))
    assert (guest.drain(), guest.dropped) == ([], 2)


def test_acceptor_answers_a_proposal_for_a_settled_number_with_its_value() -> None:
    acceptor = synod(C)
    acceptor.receive(A, Chosen(*KEY, "y"))
    acceptor.drain()
    acceptor.receive(A, Accept(LOW, *KEY, "x"))
    assert acceptor.drain() == [Send(A, Chosen(*KEY, "y"), after=1)]


def test_caught_up_event_does_not_wait_for_the_disk() -> None:
    acceptor = synod(C)
    acceptor.receive(A, Prepare(LOW))
    acceptor.drain()
    acceptor.receive(A, Minuted((Column("series", 1, ()),)))
    assert acceptor.drain() == [Emit(CaughtUp())]


END = 2**62
BROKEN = Column("series", 1, ((1, 2),))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        *((Chosen("series", number, "x"), True) for number in (1, END - 1)),
        *((Chosen("series", number, "x"), False) for number in (0, END)),
        *((Prepare(Ballot(number, A)), True) for number in (0, END - 1)),
        *((Refused(Ballot(number, A)), False) for number in (-1, END)),
        *((Promised(LOW, (Vote("s", number, "x", LOW),), ()), True) for number in (1, END - 1)),
        *((Promised(LOW, (Vote("s", number, "x", LOW),), ()), False) for number in (0, END)),
        (Promised(LOW, (), (BROKEN,)), False),
        (Minuted((BROKEN,)), False),
        (Minuted((Column("series", 1, ()),)), True),
        (Inquire(), True),
    ],
)
def test_numbers_and_rounds_in_messages_are_bounded(message: SynodMessage, expected: bool) -> None:
    assert possible(message) == expected


def test_settled_value_is_reported_once() -> None:
    learner = synod(GUEST)
    learner.receive(A, Chosen(*KEY, "x"))
    learner.receive(A, Chosen(*KEY, "x"))
    assert learner.drain() == [Emit(Settled(*KEY, "x"))]


def test_late_petition_gets_its_value_and_the_last_value_in_the_series() -> None:
    acceptor = synod(B)
    for number in range(1, 5):
        acceptor.receive(A, Chosen("series", number, f"v{number}"))
    acceptor.drain()
    acceptor.receive(GUEST, Petition("series", 2, "x"))
    expected = [(GUEST, Chosen("series", number, f"v{number}")) for number in (4, 2)]
    assert sent(acceptor.drain()) == expected


def test_decide_for_a_known_number_also_reports_the_last_value_in_the_series() -> None:
    acceptor = synod(B)
    for number in range(1, 4):
        acceptor.receive(A, Chosen("series", number, "x"))
    acceptor.drain()
    acceptor.request(Decide("series", 1, "y"))
    assert acceptor.drain() == [Emit(Settled("series", number, "x")) for number in (3, 1)]


def test_old_values_are_dropped_and_never_settled_again() -> None:
    acceptor = Synod(B, Random(0), acceptors=[A, B, C], values_max=3)
    acceptor.receive(A, Chosen("other", 1, "the last of its series"))
    for number in range(1, 5):
        acceptor.receive(A, Chosen("series", number, "x"))
    assert sorted(acceptor.values) == [("other", 1), ("series", 3), ("series", 4)]
    acceptor.drain()
    acceptor.receive(A, Accept(LOW, "series", 1, "y"))
    assert sent(acceptor.drain(), Accepted) == []


def test_votes_from_unknown_nodes_and_numbers_below_one_are_dropped_and_counted() -> None:
    leader = leading()
    assert leader.dropped == 0
    leader.drain()
    leader.receive(GUEST, Accepted(LOW, *KEY))
    leader.receive(GUEST, Petition("series", 0, "x"))
    leader.receive(GUEST, Chosen("series", 0, "x"))
    assert (leader.drain(), leader.dropped) == ([], 3)
