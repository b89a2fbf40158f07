"""OPS-2: a group's level rises once all members know it, and no member may know less."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.errors import Outdated
from oncecast.kernel.protocol import NodeId
from oncecast.replication.events import Change, LevelRaised, NotSeated
from oncecast.replication.messages import (
    CONFIG,
    NOOP,
    Ahead,
    BeatDue,
    Born,
    Chosen,
    Guide,
    Heard,
    Item,
    Offer,
)
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Config, Member, decode_config, encode_config
from tests.replication.replicas import (
    OPTIONS,
    THREE,
    A,
    B,
    C,
    D,
    Recorded,
    events,
    hear,
    leading,
    records,
    sends,
    started,
)
from tests.replication.test_membership import alive, decide, passes

RAISED = THREE.successor(*THREE.members, level=2)


def knowing(level: int = 2, config: Config = THREE) -> Paxos:
    """Return a leader that knows `level`, before any member has answered it."""
    group = leading(config=config)
    group.state.membership.known_level = level
    return group


def announce(group: Paxos, *levels: tuple[NodeId, int], seconds: float = 0.1) -> None:
    """Send a Beat, and answer it as members that know these levels."""
    group.now += seconds
    group.timeout(BeatDue())
    group.drain()
    assert group.leader.term is not None
    for node, level in levels:
        answer = Heard(group.leader.term.ballot, group.now, 1, group.applied, 2.0, level)
        hear(group, node, answer)


def test_leader_raises_the_level_when_all_members_know_it() -> None:
    group = knowing()
    announce(group, (B, 2), (C, 3))
    assert decide(group) == [NOOP, RAISED]
    assert group.level == 2


def test_replica_reports_a_higher_level_when_it_is_decided() -> None:
    group = started()
    group.state.membership.known_level, group.state.progress.known = 2, 1
    chosen = Chosen(1, (Item(CONFIG, encode_config(RAISED)),), 1)
    assert LevelRaised(2) in events(hear(group, A, chosen))


@pytest.mark.parametrize(
    "levels",
    [((B, 2), (C, 1)), ((B, 2),), ()],
    ids=["one knows less", "one has not answered", "none has answered"],
)
def test_level_does_not_rise_while_a_member_is_older_or_silent(
    levels: tuple[tuple[NodeId, int], ...],
) -> None:
    group = knowing()
    announce(group, *levels)
    assert decide(group) == []
    assert group.level == 1


def test_leader_does_not_raise_the_level_above_its_own() -> None:
    group = knowing(1)
    announce(group, (B, 2), (C, 2))
    assert decide(group) == []


def test_level_does_not_rise_while_an_upgraded_member_is_silent() -> None:
    group = knowing()
    announce(group, (C, 2))
    passes(group, group.options.suspicion + 1, B)
    announce(group, (B, 2))
    assert decide(group) == []
    announce(group, (B, 2), (C, 2))
    assert decide(group) == [NOOP, RAISED]


def test_answers_to_an_earlier_term_do_not_raise_the_level() -> None:
    group = knowing()
    announce(group, (B, 2), (C, 2))
    group.leader.stand()
    assert group.state.roster.common_level() == 0


def test_member_that_answers_without_a_level_is_assumed_to_be_at_the_first_level() -> None:
    group = knowing()
    alive(group, B, C)
    assert group.state.roster.common_level() == 1


def test_founder_starts_its_group_at_its_own_level() -> None:
    group = Paxos(A, Random(0), options=OPTIONS, incarnation=7, level=4)
    group.attach(Recorded())
    group.start()
    assert records(group.drain())[0] == Born(7, Config(1, (Member(A, 7),), 3, 7, 4), 2.0)
    assert group.level == 4


def test_lone_member_raises_the_level_by_itself() -> None:
    alone = Config(1, THREE.members[:1], 3)
    group = leading(config=alone)
    group.state.membership.known_level = 2
    announce(group)
    assert decide(group, A) == [alone.successor(*alone.members, level=2)]


# Newcomers


def test_newcomer_with_a_lower_level_is_not_added_and_is_reported_once() -> None:
    group = knowing(config=Config(1, THREE.members[:2], 3, level=2))
    announce(group, (B, 2))
    reported = [events(hear(group, D, Offer(9, 0, level))) for level in (1, 1)]
    assert reported == [[NotSeated(D, 1, 2)], []]
    assert group.state.roster.offers == {}
    group.request(Change(add=D))
    assert decide(group) == []


def test_newcomer_at_the_group_level_is_added() -> None:
    two = Config(1, THREE.members[:2], 3, level=2)
    group = knowing(config=two)
    announce(group, (B, 2))
    hear(group, D, Offer(9, 0, 2))
    assert group.leader.term is not None
    announce(group, (B, 2))
    hear(group, D, Heard(group.leader.term.ballot, group.now, 9, 0, 2.0, 2))
    assert decide(group) == [NOOP, two.added(Member(D, 9))]
    assert group.level == 2


def test_offer_from_a_waiting_newcomer_is_dropped_when_the_level_rises() -> None:
    group = knowing()
    announce(group, (B, 2), (C, 2))
    hear(group, D, Offer(9, 0, 1))
    assert list(group.state.roster.offers) == [D]
    decide(group)
    assert group.level == 2
    assert group.state.roster.offers == {}


def test_newcomer_reports_once_that_its_program_is_too_old() -> None:
    group = Paxos(D, Random(0), options=OPTIONS, contacts=(A,), incarnation=9)
    group.attach(Recorded())
    group.start()
    group.drain()
    guide = Guide(A, RAISED.without_secrets())
    assert events(hear(group, A, guide)) == [NotSeated(D, 1, 2)]
    assert events(hear(group, A, guide)) == []


def test_offer_names_the_highest_level_that_the_newcomer_knows() -> None:
    group = Paxos(D, Random(0), options=OPTIONS, contacts=(A,), incarnation=9, level=5)
    group.attach(Recorded())
    group.start()
    group.drain()
    group.joining.offer()
    assert sends(group.drain()) == [(A, Offer(9, 0, 5))]


# Programs that are too old


def test_replica_that_restores_a_higher_level_refuses_to_start() -> None:
    group = Paxos(A, Random(0), options=OPTIONS, level=2)
    group.attach(Recorded())
    with pytest.raises(Outdated) as caught:
        group.restore(Born(7, Config(1, (Member(A, 7),), 3, 7, 3)))
    assert (caught.value.level, caught.value.known) == (3, 2)
    assert "upgrade" in caught.value.remedy


def test_replica_that_learns_a_higher_level_stops_before_the_next_slot() -> None:
    group = started()
    group.state.progress.known = 2
    items = (Item(CONFIG, encode_config(RAISED)), Item(NOOP, b""))
    with pytest.raises(Outdated):
        hear(group, A, Chosen(1, items, 2))
    assert group.applied == 1


def test_replica_does_not_install_a_snapshot_with_a_higher_level() -> None:
    group = started()
    ahead = Ahead(5, 6, 0, RAISED, 1)
    with pytest.raises(Outdated):
        group.transfer._install(ahead, (b"state",))
    assert group.applied == 0


# Memberships


def test_membership_with_a_lower_level_is_not_a_valid_successor() -> None:
    lower = Config(RAISED.version + 1, RAISED.members, 3, RAISED.group, 1)
    assert not lower.follows(RAISED)
    assert RAISED.successor(*RAISED.members).follows(RAISED)


def test_membership_change_keeps_the_level() -> None:
    for config in (RAISED.added(Member(D, 9)), RAISED.removed(C), RAISED.without_secrets()):
        assert config.level == 2
    unsound = Config(2, RAISED.members, 99, 0, 2)
    assert decode_config(encode_config(unsound)).level == 2


def test_membership_from_an_older_version_has_the_first_level() -> None:
    """The old encoding has no field for the level."""
    fields = encode_config(THREE)
    old = bytes([fields[0] - 1]) + fields[1:-1]
    assert decode_config(old) == THREE
