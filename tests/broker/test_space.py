"""A leader with a full disk hands over to a member with disk space."""

from __future__ import annotations

from random import Random

from oncecast.broker.gateway import Gateway
from oncecast.broker.service import Service
from oncecast.broker.space import CHECK_EVERY, LAG_MAX, STAY, AskSpace, Space, SpaceDue, SpaceKeeper
from oncecast.kernel.protocol import Ask, Later, NodeId, Send
from oncecast.replication.events import HandOver, LeaderChanged
from tests.broker.desk import ME, Alone

B, C, STRANGER = NodeId("b"), NodeId("c"), NodeId("stranger")
AGAIN = Later(CHECK_EVERY, SpaceDue())
ASKED = [Send(B, AskSpace()), Send(C, AskSpace())]
MIN = 8 << 20


class Trio(Alone):
    def nodes(self) -> tuple[NodeId, ...]:
        return (ME, B, C)


def keeper(*, free: int | None = 0, leader: NodeId = ME) -> SpaceKeeper:
    service = Service(ME, Random(0), group=Trio())
    service.observe(LeaderChanged(leader))
    space = None if free is None else (lambda: free)
    gateway = Gateway(ME, Random(0), service=service, free_disk_bytes=space)
    made = SpaceKeeper(ME, Random(0), service=service, gateway=gateway)
    made.start()
    assert made.drain() == ([] if free is None else [AGAIN])
    return made


def test_leader_with_a_full_disk_hands_over_to_a_member_with_space() -> None:
    """SVC-10: otherwise it would refuse puts that other members could store."""
    made = keeper()
    made.timeout(SpaceDue())
    assert made.drain() == [AGAIN, *ASKED]
    made.receive(B, Space(enough=False, applied=0))
    assert made.drain() == []
    made.receive(C, Space(enough=True, applied=0))
    assert made.drain() == [Ask(HandOver(C))]
    made.receive(B, Space(enough=True, applied=0))
    assert made.drain() == []  # only one handover is in progress at a time


def test_leader_keeps_leading_and_asks_again_if_all_members_have_full_disks() -> None:
    made = keeper()
    for _ in range(3):
        made.timeout(SpaceDue())
        assert made.drain() == [AGAIN, *ASKED]
        for node in (B, C):
            made.receive(node, Space(enough=False, applied=0))
        assert made.drain() == []


def test_leader_tries_again_later_if_the_handover_fails() -> None:
    made = keeper()
    made.receive(B, Space(enough=True, applied=0))
    assert made.drain() == [Ask(HandOver(B))]
    made.timeout(SpaceDue())
    assert made.drain() == [AGAIN]
    made._clock.now = STAY
    made.timeout(SpaceDue())
    assert made.drain() == [AGAIN, *ASKED]


def test_leader_does_not_hand_over_to_a_member_that_is_far_behind() -> None:
    made = keeper()
    group = made._service.group
    assert isinstance(group, Trio)
    group.applied = LAG_MAX + 1
    made.receive(B, Space(enough=True, applied=0))
    assert made.drain() == []
    made.receive(B, Space(enough=True, applied=1))
    assert made.drain() == [Ask(HandOver(B))]


def test_leader_with_space_and_follower_with_a_full_disk_do_nothing() -> None:
    for made in (keeper(free=MIN), keeper(leader=B), keeper(free=None)):
        made.timeout(SpaceDue())
        assert made.drain() == [AGAIN]
        made.receive(B, Space(enough=True, applied=0))
        assert made.drain() == []


def test_member_needs_twice_the_reserved_space_to_lead() -> None:
    for free, enough in ((2 * MIN - 1, False), (2 * MIN, True), (None, True)):
        made = keeper(free=free, leader=B)
        made.receive(B, AskSpace())
        assert made.drain() == [Send(B, Space(enough, 0))]


def test_messages_from_nodes_outside_the_group_are_ignored() -> None:
    """SEC-1"""
    made = keeper()
    made.receive(STRANGER, AskSpace())
    made.receive(STRANGER, Space(enough=True, applied=0))
    assert made.drain() == []
