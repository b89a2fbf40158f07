"""Who asks for a change of the group gets it, or is in nobody's way; who is alone may move."""

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


class Deaf:
    """Learns, and forgets."""

    def install(self, slot: int, state: tuple[bytes, ...]) -> None: ...
    def learn(self, slot: int, value: bytes) -> None: ...


def replica(me: NodeId = ME, contacts: tuple[NodeId, ...] = (), size: int = 3) -> Paxos:
    made = Paxos(me, Random(0), incarnation=7, contacts=contacts, options=GroupOptions(size=size))
    made.attach(Deaf())
    return made


def leading(size: int = 3) -> Paxos:
    group = replica(size=size)
    group.start()
    return group


def asked(group: Paxos, change: Change) -> list[Config]:
    """The memberships that it proposes at once."""
    group.drain()
    group.request(change)
    records = [effect.record for effect in group.drain() if isinstance(effect, Append)]
    return [decode_config(each.data) for each in records if isinstance(each, Entry)]


def test_who_is_alone_goes_by_another_address_after_a_restart() -> None:
    """SVC-10: a node on any free port finds what it had, and leads."""
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
    """SVC-10: its last promise names its second address, and its membership the first."""
    moved = replica(THIRD)
    moved.restore(Born(7, Config(1, (Member(ME, 7),), 3)))
    moved.restore(Promised(Ballot(2, OTHER), Vouch(0, 0, 0)))
    moved.start()
    assert Emit(LeaderChanged(THIRD), after=0) in moved.drain()


def test_who_has_others_keeps_its_address_or_is_a_stranger() -> None:
    moved = replica(THIRD)
    both = (Member(ME, 7), Member(OTHER, 8))
    moved.restore(Born(7, Config(2, both, 3)))
    moved.start()
    assert moved.state.membership.config.members == both
    assert not moved.state.membership.is_member


def test_whose_disk_was_lost_does_not_take_the_place_of_who_was_alone() -> None:
    other_life = replica()
    other_life.restore(Born(8, Config(1, (Member(ME, 7),), 3)))
    other_life.start()
    assert not other_life.state.membership.is_member


def test_who_waits_for_a_seat_sends_clients_to_those_it_knows() -> None:
    outsider = replica(contacts=(OTHER, THIRD))
    outsider.start()
    assert outsider.nodes() == (OTHER, THIRD)


def test_a_node_that_offered_itself_is_added_when_asked_for() -> None:
    group = leading(size=1)
    group.receive(OTHER, Offer(9, 0))
    members = (Member(ME, 7), Member(OTHER, 9))
    assert [each.members for each in asked(group, Change(add=OTHER, size=2))] == [members]


def test_a_node_that_never_offered_itself_is_in_nobodys_way() -> None:
    group = leading()
    assert asked(group, Change(add=THIRD)) == []
    assert group.state.roster.changes == []
    group.receive(OTHER, Offer(9, 0))
    assert group.leader.term is not None
    assert group.leader.term.changing is not None  # the free seat is for who is there


def test_who_does_not_lead_keeps_no_change_for_later() -> None:
    follower = replica(contacts=(OTHER,))
    follower.start()
    follower.request(Change(remove=OTHER))
    assert follower.state.roster.changes == []


def test_a_leader_knows_how_far_the_others_are() -> None:
    group = leading()
    assert group.leader.term is not None
    group.receive(OTHER, Heard(group.leader.term.ballot, 0.0, 9, 41, 2.0))
    assert group.state.roster.reported == {Member(OTHER, 9): 41}


def test_who_is_taken_in_is_not_suspected_for_what_was_before() -> None:
    """REP-4: its seat would go to the next who offers itself."""
    group = leading()
    group.now = 1000.0
    group.receive(OTHER, Offer(9, 0))
    group.state.membership.history.decided(1, Config(2, (Member(ME, 7), Member(OTHER, 9)), 3))
    group.reconfiguration.look()
    assert group.state.roster.silent == {}
    group.now += 2 * group.options.suspicion
    group.reconfiguration.look()
    assert list(group.state.roster.silent) == [OTHER]


def test_who_has_joined_has_its_seat_after_a_restart_too() -> None:
    """REP-4: as it joined it was nobody's member, and a disk gives that back as another value."""
    made = replica(OTHER, contacts=(ME,))
    born = msgspec.msgpack.decode(msgspec.msgpack.encode(Born(7, NO_MEMBERS)), type=Born)
    made.restore(born)
    config = Config(2, (Member(ME, 1), Member(OTHER, 7)), 3)
    made.restore(Learned(1, CONFIG, encode_config(config)))
    assert made.state.membership.config == config
    assert made.state.membership.is_member
