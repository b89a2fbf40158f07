"""Requested membership changes, and a lone replica that changes its address."""

from __future__ import annotations

from random import Random

import msgspec

from oncecast.kernel.protocol import Append, Emit, NodeId
from oncecast.replication.ballot import Ballot
from oncecast.replication.events import Change, Decided, LeaderChanged, Propose
from oncecast.replication.messages import (
    CONFIG,
    Born,
    Entry,
    Heard,
    Learned,
    Offer,
    Promised,
    Stored,
    Vouch,
)
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import NO_MEMBERS, Config, Member, decode_config, encode_config

ME, OTHER, THIRD = NodeId("me"), NodeId("other"), NodeId("third")


class NoState:
    """A state machine that ignores all inputs."""

    def install(self, slot: int, state: tuple[bytes, ...]) -> None: ...
    def learn(self, slot: int, value: bytes) -> None: ...


def replica(me: NodeId = ME, contacts: tuple[NodeId, ...] = (), size: int = 3) -> Paxos:
    made = Paxos(me, Random(0), incarnation=7, contacts=contacts, options=GroupOptions(size=size))
    made.attach(NoState())
    return made


def leading(size: int = 3) -> Paxos:
    group = replica(size=size)
    group.start()
    return group


def answers(group: Paxos, applied: int = 0) -> None:
    """Offer OTHER, and answer a Beat as that node."""
    group.receive(OTHER, Offer(9, 0))
    assert group.leader.term is not None
    group.receive(OTHER, Heard(group.leader.term.ballot, group.now, 9, applied, 2.0))


def asked(group: Paxos, change: Change) -> list[Config]:
    """Request a change, and return the memberships that are proposed at once."""
    group.drain()
    group.request(change)
    if change.add and group.state.roster.newcomer == OTHER:
        answers(group)
    records = [effect.record for effect in group.drain() if isinstance(effect, Append)]
    return [decode_config(each.data) for each in records if isinstance(each, Entry)]


def test_lone_replica_may_change_its_address_when_it_restarts() -> None:
    """SVC-10: a node on any free port keeps its data and leads."""
    moved = replica(OTHER)
    moved.restore(Born(7, Config(1, (Member(ME, 7),), 3)))
    moved.start()
    assert moved.state.membership.config == Config(1, (Member(OTHER, 7),), 3)
    assert Emit(LeaderChanged(OTHER), after=0) in moved.drain()
    moved.request(Propose(1, b"value"))
    moved.drain()
    moved.receive(OTHER, Stored(10))
    assert Emit(Decided(1, b"value", 1), after=0) in moved.drain()


def test_lone_node_leads_at_once_at_its_third_address() -> None:
    """SVC-10: the last promise names the second address, and the membership names the first."""
    moved = replica(THIRD)
    moved.restore(Born(7, Config(1, (Member(ME, 7),), 3)))
    moved.restore(Promised(Ballot(2, OTHER), Vouch(0, 0, 0)))
    moved.start()
    assert Emit(LeaderChanged(THIRD), after=0) in moved.drain()


def test_replica_in_a_group_of_two_loses_its_membership_if_its_address_changes() -> None:
    moved = replica(THIRD)
    both = (Member(ME, 7), Member(OTHER, 8))
    moved.restore(Born(7, Config(2, both, 3)))
    moved.start()
    assert moved.state.membership.config.members == both
    assert not moved.state.membership.is_member


def test_new_incarnation_is_not_a_member_of_the_old_single_node_group() -> None:
    renewed = replica()
    renewed.restore(Born(8, Config(1, (Member(ME, 7),), 3)))
    renewed.start()
    assert not renewed.state.membership.is_member


def test_newcomer_redirects_clients_to_its_contacts() -> None:
    outsider = replica(contacts=(OTHER, THIRD))
    outsider.start()
    assert outsider.nodes() == (OTHER, THIRD)


def test_node_is_added_on_request_after_it_offers_itself() -> None:
    group = leading(size=1)
    group.receive(OTHER, Offer(9, 0))
    members = (Member(ME, 7), Member(OTHER, 9))
    assert [each.members for each in asked(group, Change(add=OTHER, size=2))] == [members]


def test_change_for_a_node_that_never_offered_itself_is_dropped() -> None:
    group = leading()
    assert asked(group, Change(add=THIRD)) == []
    assert group.state.roster.changes == []
    answers(group)
    assert group.leader.term is not None
    assert group.leader.term.changing is not None  # OTHER is added instead


def test_newcomer_drops_requested_changes() -> None:
    follower = replica(contacts=(OTHER,))
    follower.start()
    follower.request(Change(remove=OTHER))
    assert follower.state.roster.changes == []


def test_leader_records_the_applied_slots_that_followers_report() -> None:
    group = leading()
    answers(group, 41)
    assert group.state.roster.reported == {Member(OTHER, 9): 41}


def test_new_member_is_not_suspected_because_of_silence_before_it_joined() -> None:
    """REP-4: otherwise the next newcomer would replace it."""
    group = leading()
    group.now = 1000.0
    group.receive(OTHER, Offer(9, 0))
    group.state.membership.history.decided(1, Config(2, (Member(ME, 7), Member(OTHER, 9)), 3))
    group.reconfiguration.look()
    assert group.state.roster.silent == {}
    group.now += 2 * group.options.suspicion
    group.reconfiguration.look()
    assert list(group.state.roster.silent) == [OTHER]


def test_replica_that_joined_is_a_member_after_a_restart() -> None:
    """REP-4: the Born record has an empty membership, which is not NO_MEMBERS once decoded."""
    made = replica(OTHER, contacts=(ME,))
    born = msgspec.msgpack.decode(msgspec.msgpack.encode(Born(7, NO_MEMBERS)), type=Born)
    made.restore(born)
    config = Config(2, (Member(ME, 1), Member(OTHER, 7)), 3)
    made.restore(Learned(1, CONFIG, encode_config(config)))
    assert made.state.membership.config == config
    assert made.state.membership.is_member
