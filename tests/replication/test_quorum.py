"""REP-2: test the arithmetic of majorities and memberships."""

from __future__ import annotations

from itertools import combinations

import pytest

from oncecast.kernel.protocol import NodeId
from oncecast.replication.ballot import BOTTOM, Ballot, above
from oncecast.replication.quorum import NO_MEMBERS, Config, Member, Memberships
from tests.replication.replicas import THREE, A, B, D


def config(count: int, version: int = 1) -> Config:
    nodes = [Member(NodeId(f"n{at}"), 1) for at in range(count)]
    return Config(version, tuple(nodes), count)


def majorities(config: Config) -> list[tuple[Member, ...]]:
    return [
        some
        for count in range(len(config.members) + 1)
        for some in combinations(config.members, count)
        if config.agreed(some)
    ]


@pytest.mark.parametrize(("count", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_more_than_half_is_a_majority(count: int, needed: int) -> None:
    members = config(count).members
    assert config(count).agreed(members[:needed])
    assert not config(count).agreed(members[: needed - 1])


def test_empty_membership_has_no_majority() -> None:
    assert not NO_MEMBERS.agreed({Member(A, 1): None})


def test_another_incarnation_of_a_member_does_not_count_towards_a_majority() -> None:
    assert not THREE.agreed([Member(A, 2), Member(B, 1)])


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_majorities_in_consecutive_memberships_share_a_member(count: int) -> None:
    """Safety depends on this. It would not hold if one change both added and removed a member."""
    now = config(count)
    successors = [now.added(Member(D, 1))]
    if count > 1:
        successors += [now.removed(node) for node in now.nodes()]
    for later in successors:
        for one in majorities(now):
            for other in majorities(later):
                assert any(member in other for member in one)


def test_successor_has_the_next_version_and_keeps_the_size_by_default() -> None:
    assert THREE.added(Member(D, 4)) == Config(2, (*THREE.members, Member(D, 4)), 3)
    assert THREE.removed(B, 2) == Config(2, (Member(A, 1), THREE.members[2]), 2)
    assert THREE.successor(*THREE.members) == Config(2, THREE.members, 3)
    assert THREE.successor(*THREE.members, size=5) == Config(2, THREE.members, 5)


def test_membership_takes_effect_after_the_slot_that_decided_it() -> None:
    chain = Memberships()
    chain.start(0, config(1))
    chain.decided(5, config(2, 2))
    chain.decided(9, config(3, 3))
    assert [chain.of(slot).version for slot in (1, 5, 6, 9, 10, 99)] == [1, 1, 2, 2, 3, 3]
    chain.forget(6)
    assert [chain.of(slot).version for slot in (7, 9, 10)] == [2, 2, 3]
    assert chain.last.version == 3


def test_new_membership_history_is_empty() -> None:
    """REP-2"""
    assert (Memberships().since, Memberships().of(1), Memberships().last) == (
        0,
        NO_MEMBERS,
        NO_MEMBERS,
    )


def test_membership_history_knows_only_slots_after_its_first_membership() -> None:
    """REP-2"""
    chain = Memberships()
    chain.start(2, config(1))
    chain.decided(5, config(2, 2))
    assert [chain.knows(slot) for slot in (2, 3, 5, 6)] == [False, True, True, True]


@pytest.mark.parametrize(("slot", "first"), [(0, 2), (4, 2), (5, 5), (8, 5), (9, 9), (99, 9)])
def test_old_memberships_are_dropped(slot: int, first: int) -> None:
    """REP-2"""
    chain = Memberships()
    chain.start(2, config(1))
    chain.decided(5, config(2, 2))
    chain.decided(9, config(3, 3))
    chain.forget(slot)
    assert chain._slots == [each for each in (2, 5, 9) if each >= first]
    assert len(chain._configs) == len(chain._slots)


def test_next_ballot_is_higher_than_the_given_ballot() -> None:
    assert above(BOTTOM, A) > BOTTOM
    assert above(Ballot(3, B), A) > Ballot(3, B)
    assert Ballot(3, B) > Ballot(3, A) > Ballot(2, B)
