"""REP-2: one member more or less at a time, decided in the log; no seat is taken too early."""

from __future__ import annotations

from oncecast.kernel.protocol import NodeId
from oncecast.replication.core import decode_config, encode_config
from oncecast.replication.events import Change, Suspected
from oncecast.replication.messages import (
    CONFIG,
    NOOP,
    Accepted,
    Beat,
    Chosen,
    Guide,
    Heard,
    Item,
    Offer,
    OfferDue,
    Promise,
)
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import NOBODY, Config, Member
from tests.replication.replicas import (
    THREE,
    A,
    B,
    C,
    D,
    asleep,
    ballot,
    command,
    events,
    hear,
    leading,
    sends,
    sync,
)


def alive(group: Paxos, *nodes: NodeId, life: int = 1, now: float = 0.1) -> None:
    """A Beat, a while after the last one, and the answers of these."""
    group.now += now
    group.beat()
    group.drain()
    assert group.reign is not None
    for node in nodes:
        hear(group, node, Heard(group.reign.ballot, group.now, life, group.applied, 2.0))


def passes(group: Paxos, seconds: float, *nodes: NodeId) -> None:
    """Only these are heard of for so long."""
    for _ in range(int(2 * seconds)):
        alive(group, *nodes, now=0.5)


def decide(group: Paxos) -> list[Config | int]:
    """Let B agree to all that is on its way; the memberships, or kinds, that were proposed."""
    found: list[Config | int] = []
    group.look_at_seats()
    while group.reign is not None and group.reign.flying:
        slot = group.reign.flying[0][0]
        kind, data = group.item(slot)
        found.append(decode_config(data) if kind == CONFIG else kind)
        sync(group)
        hear(group, B, Accepted(group.reign.ballot, slot, slot, 1))
        group.look_at_seats()
        if group.applied < slot:
            break  # B is not enough
    return found


def offered(group: Paxos, node: NodeId, life: int = 9, applied: int = 0) -> None:
    group.receive(node, Offer(life, applied))


def test_a_change_is_proposed_only_under_a_membership_that_was_decided_under() -> None:
    """With its own ballot, something else first: nobody with a lower one can then decide behind."""
    group = leading()
    alive(group, B, C)
    group.request(Change(remove=C))
    assert decide(group) == [NOOP, THREE.removed(C)]


def test_one_in_and_one_out_are_two_steps() -> None:
    group = leading()
    alive(group, B, C)
    offered(group, D)
    group.request(Change(add=D, remove=C))
    four = THREE.added(Member(D, 9))
    assert decide(group) == [NOOP, four]
    assert group.reign is not None
    for node, life in ((C, 1), (D, 9)):
        hear(group, node, Promise(group.reign.ballot, life, 1, 2, (), ()))
    assert decide(group) == [four.removed(C)]


def test_who_offers_itself_gets_a_free_seat() -> None:
    group = leading(config=Config(1, THREE.members[:2], 3))
    alive(group, B)
    offered(group, D)
    assert decide(group)[-1] == Config(2, (*THREE.members[:2], Member(D, 9)), 3)


def test_who_offers_itself_gets_no_seat_that_is_taken() -> None:
    group = leading()
    alive(group, B, C)
    offered(group, D)
    assert decide(group) == []


def test_who_is_silent_for_too_long_loses_its_seat_to_who_offers_itself() -> None:
    group = leading()
    alive(group, B, C)
    passes(group, group.options.replace_after + 1, B)
    assert list(group.silent) == [C]
    assert decide(group) == []  # as long as nobody offers itself
    offered(group, D)
    two = THREE.removed(C)
    assert decide(group) == [NOOP, two, two.added(Member(D, 9))]


def test_who_was_only_just_silent_keeps_its_seat() -> None:
    group = leading()
    alive(group, B, C)
    offered(group, D)
    passes(group, group.options.suspicion + 1, B)
    assert list(group.silent) == [C]
    offered(group, D)
    assert decide(group) == []


def test_another_life_of_a_member_takes_its_place_when_the_first_is_silent() -> None:
    """A disk was lost. As long as the seated life is heard of, the offer is an old one."""
    group = leading()
    alive(group, B, C)
    offered(group, C, life=2)
    assert decide(group) == []
    passes(group, group.options.suspicion + 1, B)
    alive(group, C, life=2)  # it answers, but in a life that has no seat
    assert list(group.silent) == [C]
    offered(group, C, life=2)
    two = THREE.removed(C)
    assert decide(group) == [NOOP, two, two.added(Member(C, 2))]


def test_who_is_far_behind_is_told_of_what_is_chosen_before_it_gets_a_seat() -> None:
    group = leading(config=Config(1, THREE.members[:2], 3))
    alive(group, B)
    assert group.reign is not None
    group.applied = group.options.window_slots
    offered(group, D, applied=0)
    assert group.reign.changing is None
    assert group.audience() == [B, D]
    hear(group, D, Heard(group.reign.ballot, group.now, 9, group.applied, 2.0))
    group.look_at_seats()
    assert group.reign.queue or group.reign.flying


def test_nobody_is_sent_away_if_no_majority_would_be_left() -> None:
    group = leading()
    alive(group, B, C)
    passes(group, group.options.suspicion + 1, B)
    assert list(group.silent) == [C]
    group.request(Change(remove=B))
    assert decide(group) == []
    assert group.changes == []


def test_silence_is_told_and_its_end_too() -> None:
    group = leading()
    alive(group, B, C)
    passes(group, group.options.suspicion, B)
    group.now += 0.5
    group.beat()
    assert Suspected(C, True) in events(group.drain())
    assert group.reign is not None
    heard = hear(group, C, Heard(group.reign.ballot, group.now, 1, 0, 2.0))
    assert events(heard) == [Suspected(C, False)]


# -- outside --


def outsider() -> Paxos:
    group = asleep(D, NOBODY)
    group.contacts = (A, B)
    group.start()
    group.drain()
    group.now = 100.0
    return group


def test_an_outsider_offers_itself_to_all_it_knows_and_then_to_whom_it_is_told() -> None:
    group = outsider()
    group.timeout(OfferDue())
    assert [to for to, _ in sends(group.drain())] == [A, B]
    hear(group, A, Guide(C, THREE))
    group.timeout(OfferDue())
    assert [to for to, _ in sends(group.drain())] == [C]
    group.timeout(OfferDue())  # it did not answer
    assert [to for to, _ in sends(group.drain())] == [A, B, C]


def test_an_outsider_does_not_wait_for_a_leader_that_is_silent() -> None:
    group = outsider()
    hear(group, C, Beat(ballot(1, C), 0, 1.0))
    group.timeout(OfferDue())
    assert [to for to, _ in sends(group.drain())] == [C]
    group.now += 2 * group.options.suspicion
    group.timeout(OfferDue())
    assert [to for to, _ in sends(group.drain())] == [A, B]


def test_an_outsider_that_learns_of_its_seat_offers_itself_no_more() -> None:
    group = outsider()
    group.life = 9
    seat = Item(CONFIG, encode_config(THREE.added(Member(D, 9))))
    hear(group, A, Beat(ballot(1), 2, 1.0))
    hear(group, A, Chosen(1, (command(b"x"), seat)))
    assert group.seated
    group.timeout(OfferDue())
    assert group.drain() == []
