"""SEC-1: a non-member cannot harm a group, and answers count only if requested."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.kernel.protocol import Send
from oncecast.replication.ballot import ROUND_MAX, STEP, Ballot
from oncecast.replication.messages import (
    CONFIG,
    Accept,
    Accepted,
    Ahead,
    Beat,
    BeatDue,
    Canvass,
    Checkpoint,
    Chosen,
    Consent,
    Guide,
    Heard,
    Item,
    Lacking,
    Message,
    Offer,
    OfferDue,
    Piece,
    Prepare,
    Promise,
    Promised,
    Recall,
    Recalled,
    Reject,
    Release,
    Stored,
    Sum,
    Vote,
    Vouch,
    Want,
    WantPiece,
)
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Config, Member, decode_config, encode_config
from tests.replication.replicas import (
    OPTIONS,
    THREE,
    A,
    B,
    C,
    D,
    ballot,
    command,
    expire,
    hear,
    leading,
    restored,
    sends,
    started,
    sync,
)

NUMBERED = Config(1, THREE.members, 3, group=7)
LONE = Config(1, (Member(A, 1),), 3, group=1)
X = command(b"x")
FAR = Ballot(2**64 - 1, D)
GROUP = 7


def forged(group: int) -> list[Message]:
    """Return messages from the non-member D to a group whose number it claims to know."""
    return [
        Canvass(1, group),
        Prepare(ballot(5, D), 1, group),
        Accept(ballot(5, D), 1, (X,), 1, group),
        Beat(ballot(5, D), 9, 100.0, group),
        Want(1, 9, group),
        WantPiece(1, 0, group),
        Recall(1, group),
    ]


ANSWERS: list[Message] = [
    Consent(1),
    Promise(ballot(1), 1, 1, 9, (Vote(1, ballot(9, D), X),), ()),
    Reject(ballot(5, D)),
    Accepted(ballot(5, D), 1, 1, 1),
    Heard(ballot(1), 100.0, 1, 9, 2.0),
    Release(ballot(5, D), B),
    Chosen(1, (X,), 9),
    Lacking(1, True),
    Recalled(1, 1, None),
    Ahead(9, 9, 1, THREE, 1),
    Piece(9, 0, b"x", True),
    Guide(D, THREE),
    Sum(1, 1, b"x"),
    Stored(9),
]


@pytest.mark.parametrize("message", [*forged(0), *ANSWERS], ids=lambda each: type(each).__name__)
def test_message_from_a_non_member_has_no_effect_and_is_counted(message: Message) -> None:
    for group in (leading(A, NUMBERED), started(B, NUMBERED)):
        group.receive(D, message)
        assert group.drain() == []
        assert group.gate.refused == 1
        assert D not in group.last_message


@pytest.mark.parametrize("message", forged(8), ids=lambda each: type(each).__name__)
def test_request_with_another_group_number_has_no_effect(message: Message) -> None:
    assert hear(started(B, NUMBERED), D, message) == []


def test_node_that_knows_the_group_number_is_answered() -> None:
    """The node may be a leader that was elected while this replica was down, or a removed
    member."""
    group = started(B, NUMBERED)
    group.state.progress.applied = 3
    assert sends(hear(group, D, Canvass(1, GROUP))) == [(D, Consent(1))]
    (heard,) = sends(hear(group, D, Beat(ballot(5, D), 0, 100.0, GROUP)))
    assert heard == (D, Heard(ballot(5, D), 100.0, 1, 3, OPTIONS.suspicion))


def test_newcomer_listens_to_its_contacts_and_the_nodes_they_name() -> None:
    group = Paxos(D, Random(0), contacts=(A,), options=OPTIONS)
    group.start()
    group.drain()
    assert hear(group, B, Beat(ballot(1, B), 4, 1.0, GROUP)) == []
    group.receive(A, Guide(B, Config(1, (Member(A, 0),), 3)))
    assert group.joining.guide == ""  # the newcomer has not asked A yet
    expire(group, OfferDue())
    group.receive(A, Guide(B, Config(1, (Member(A, 0),), 3)))
    expire(group, OfferDue())
    assert hear(group, B, Beat(ballot(1, B), 4, 1.0, GROUP)) != []
    assert group.state.membership.group == GROUP
    assert hear(group, A, Want(1, 9, 8)) == []


@pytest.mark.parametrize(
    "message",
    [
        Chosen(1, (X,), 1),
        Lacking(1, True),
        Recalled(1, 1, None),
        Ahead(9, 9, 1, NUMBERED, 1),
        Piece(9, 0, b"x", True),
    ],
    ids=lambda each: type(each).__name__,
)
def test_unsolicited_answer_from_a_member_has_no_effect(message: Message) -> None:
    group = started(B, NUMBERED)
    group.receive(A, message)
    assert (group.drain(), group.gate.refused) == ([], 1)
    group.state.fetching.ask(A)
    group.now += 5 * OPTIONS.suspicion + 0.1
    group.receive(A, message)
    assert (group.drain(), group.gate.refused) == ([], 2)


def test_requested_chosen_values_from_a_member_are_applied() -> None:
    group = started(B, NUMBERED)
    hear(group, A, Beat(ballot(1), 1, 100.0, GROUP))
    group.catch_up.on_behind()
    assert (A, Want(1, 1, GROUP)) in sends(group.drain())
    group.receive(A, Chosen(1, (X,), 1))
    assert group.applied == 1


def test_values_far_ahead_are_not_stored() -> None:
    """Otherwise one message could fill the memory with slots that can never be applied."""
    group = started(B, NUMBERED)
    effects = hear(group, A, Chosen(OPTIONS.ahead_slots + 1, (X,), 0))
    assert group.state.progress.learned == {}
    assert [each for each in sends(effects) if not isinstance(each[1], Stored)] == []


# -- ballots --


@pytest.mark.parametrize("round", [STEP + 2, ROUND_MAX, 2**63, 2**64 - 1])
def test_ballot_far_ahead_is_ignored_even_from_a_member(round: int) -> None:
    far = Ballot(round, B)
    group = leading(A, NUMBERED)
    for message in (
        Prepare(far, 1),
        Accept(far, 1, (X,), 0),
        Beat(far, 0, 100.0),
        Reject(far),
        Accepted(far, 1, 1, 1),
        Release(far, C),
    ):
        assert hear(group, B, message) == []
        assert group.leader.seen.round < ROUND_MAX
        group.leader.seen = ballot(1)
        group.leader.reach = STEP
    assert group.leader.term is not None


def test_ballot_one_step_ahead_is_promised() -> None:
    group = started(B)
    assert sends(hear(group, A, Prepare(ballot(STEP), 1)))[0][0] == A
    assert group.state.votes.promised == ballot(STEP)
    hear(group, A, Prepare(ballot(2 * STEP), 1))
    assert group.state.votes.promised == ballot(2 * STEP)


def test_replica_promises_a_ballot_several_steps_ahead_after_repeated_prepares() -> None:
    """Otherwise a group with one replica several steps ahead could never elect a leader."""
    group = started(B)
    far = ballot(3 * STEP)
    for _ in range(2):
        assert hear(group, A, Prepare(far, 1)) == []
    assert hear(group, A, Prepare(far, 1)) != []
    assert group.state.votes.promised == far


def test_restart_drops_a_promise_with_an_impossible_ballot() -> None:
    """An earlier version could make such a promise to a non-member."""
    group = restored(Promised(ballot(3), Vouch(0, 0, 0)), Promised(FAR, Vouch(0, 0, 0)))
    assert group.state.votes.promised == ballot(3)
    group.restore(Checkpoint((), 0, 1, 1, FAR, Vouch(0, 0, 0), THREE, 0, (), ()))
    assert group.state.votes.promised == ballot(3)


def test_replica_never_uses_a_ballot_above_the_maximum() -> None:
    group = started(A)
    group.state.votes.promised = Ballot(ROUND_MAX, B)
    group.leader.stand()
    assert group.drain() == []


# -- the lease --


@pytest.mark.parametrize("stamp", [float("inf"), float("nan"), 101.0, -1.0])
def test_answer_to_an_unsent_beat_does_not_extend_the_lease(stamp: float) -> None:
    group = leading(A, NUMBERED)
    hear(group, B, Heard(ballot(1), stamp, 1, 0, 2.0))
    hear(group, B, Heard(ballot(1), 100.0, 1, 0, float("nan")))
    assert Member(B, 1) not in group.leader.term.ends  # type: ignore[union-attr]


# -- newcomers --


def alone() -> Paxos:
    group = started(A, LONE)
    assert group.leads(group.now)
    return group


def test_unresponsive_newcomer_does_not_join_a_lone_node() -> None:
    group = alone()
    for _ in range(100):
        effects = hear(group, D, Offer(9, 2**64 - 1))
        assert not [each for each in sends(effects) if isinstance(each[1], Accept)]
        group.now += 1.0
        group.timeout(BeatDue())
        group.drain()
    assert group.state.membership.config == LONE
    assert group.leads(group.now)


def test_responsive_newcomer_joins_a_lone_node() -> None:
    group = alone()
    beats = [each for _, each in sends(hear(group, D, Offer(9, 0))) if isinstance(each, Beat)]
    (beat,) = beats
    hear(group, D, Heard(beat.ballot, beat.stamp, 9, 0, 2.0))
    sync(group)
    assert group.state.membership.config.nodes() == [A, D]


@pytest.mark.parametrize(
    "message", [Heard(ballot(1), 100.0, 9, 0, 2.0), Accepted(ballot(1), 1, 1, 9)]
)
def test_only_the_newcomer_that_catches_up_may_answer_the_leader(message: Message) -> None:
    group = leading(A, NUMBERED)
    hear(group, D, Offer(9, 0))  # no seat is free
    group.receive(D, message)
    assert (group.gate.refused, group.state.roster.reported) == (1, {})


# -- memberships --


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 9,
        encode_config(Config(2, (), 3, 7)),
        encode_config(Config(2, (Member(D, 1), Member(D, 2)), 3, 7)),
        encode_config(Config(2, (Member(D, 1),), 3, 7)),
        encode_config(Config(2, NUMBERED.members[:1], 3, 7)),
        encode_config(Config(3, NUMBERED.members, 3, 7)),
        encode_config(Config(2, NUMBERED.members, 3, 8)),
        b"\x91" * 2000,
    ],
)
def test_invalid_membership_changes_nothing(data: bytes) -> None:
    group = started(B, NUMBERED)
    hear(group, A, Chosen(1, (Item(CONFIG, data), X), 2))
    assert group.applied == 2
    assert group.state.membership.config == NUMBERED


@pytest.mark.parametrize("size", [-1, 0, -(2**63), 10, 2**63])
def test_group_keeps_its_members_after_it_has_decided_an_invalid_size(size: int) -> None:
    """SVC-10: an earlier version accepted such a size and could not start again."""
    bad = Config(2, THREE.members, size)
    assert decode_config(encode_config(bad)) == Config(2, THREE.members, 3)
    group = started(A, bad)
    assert group.state.membership.config.size == 3
    leader = leading(A, bad)
    leader.reconfiguration.look()
    assert leader.leader.term is not None
    assert not leader.leader.term.queue


def test_leader_proposes_a_damaged_membership_again_without_adopting_it() -> None:
    group = started(A, NUMBERED)
    group.leader.stand()
    group.drain()
    vote = Vote(1, ballot(0, B), Item(CONFIG, b""))
    hear(group, A, Promise(ballot(1), 1, 1, 0, (), ()))
    hear(group, B, Promise(ballot(1), 1, 1, 0, (vote,), ()))
    assert not group.leads(group.now)
    sync(group)
    hear(group, B, Accepted(ballot(1), 1, 1, 1))
    assert group.state.membership.config == NUMBERED
    assert group.applied == 1


# -- comparing --


def test_second_digest_from_a_replica_for_the_same_slot_is_ignored() -> None:
    group = started(A, NUMBERED)
    group.state.progress.checks.append((5, 0))
    for node in (B, C):
        hear(group, node, Sum(5, 0, b"mine"))
    group.comparison.on_sum(A, Sum(5, 0, b"mine"))
    for node in (B, C):
        hear(group, node, Sum(5, 0, b"forged"))
    far = OPTIONS.ahead_slots + 1
    hear(group, B, Sum(far, 0, b"x"))
    assert far not in group.comparison.sums


def test_lone_node_accepts_only_offers_from_non_members() -> None:
    group = started(A, LONE, GroupOptions(compare_every=0.0, size=1))
    for message in (*forged(0), *ANSWERS):
        group.receive(D, message)
        assert group.drain() == []
    (guide, *_) = hear(group, D, Offer(9, 0))
    assert guide == Send(D, Guide(A, LONE.without_secrets()), after=0)
    assert group.leads(group.now)
