"""REP-2: one member more or less at a time, decided in the log; no seat is taken too early."""

from __future__ import annotations

from oncecast.kernel.protocol import NodeId
from oncecast.replication.events import Change, LeaderChanged, Suspected
from oncecast.replication.messages import (
    CONFIG,
    NOOP,
    Accepted,
    Beat,
    BeatDue,
    Chosen,
    Guide,
    Heard,
    Item,
    Offer,
    OfferDue,
    Promise,
)
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import NO_MEMBERS, Config, Member, decode_config, encode_config
from oncecast.replication.reconfiguration import OFFERS_MAX
from tests.replication.replicas import (
    OPTIONS,
    THREE,
    A,
    B,
    C,
    D,
    E,
    F,
    G,
    asleep,
    ballot,
    command,
    events,
    hear,
    leading,
    sends,
    sync,
)

FOUR = THREE.added(Member(D, 9))
FIVE = Config(1, tuple(Member(node, 1) for node in (A, B, C, D, E)), 5)


def alive(group: Paxos, *nodes: NodeId, life: int = 1, now: float = 0.1) -> None:
    """A Beat, a while after the last one, and the answers of these."""
    group.now += now
    group.timeout(BeatDue())
    group.drain()
    assert group.leader.term is not None
    for node in nodes:
        hear(group, node, Heard(group.leader.term.ballot, group.now, life, group.applied, 2.0))


def passes(group: Paxos, seconds: float, *nodes: NodeId) -> None:
    """Only these are heard of for so long."""
    for _ in range(int(2 * seconds)):
        alive(group, *nodes, now=0.5)


def decide(group: Paxos, *nodes: NodeId) -> list[Config | int]:
    """Let B, or these, agree to all that is on its way; the memberships, or kinds, proposed."""
    found: list[Config | int] = []
    group.reconfiguration.look()
    while group.leader.term is not None and group.leader.term.in_flight:
        slot = group.leader.term.in_flight[0][0]
        kind, data = group.state.values.item(slot)
        found.append(decode_config(data) if kind == CONFIG else kind)
        sync(group)
        for member in group.state.membership.config.members:
            if member.node in (nodes or (B,)) and group.leader.term.in_flight:
                hear(
                    group,
                    member.node,
                    Accepted(group.leader.term.ballot, slot, slot, member.incarnation),
                )
        group.reconfiguration.look()
        if group.applied < slot:
            break  # they are not enough
    return found


def queued(group: Paxos) -> list[Item]:
    """Return what waits to be proposed."""
    assert group.leader.term is not None
    return [item for _, item in group.leader.term.queue]


def taken_in(group: Paxos, node: NodeId, life: int = 9) -> None:
    """It hears of its seat, promises what a member must, and has caught up."""
    assert group.leader.term is not None
    hear(group, node, Promise(group.leader.term.ballot, life, 1, group.applied, (), ()))
    hear(group, node, Heard(group.leader.term.ballot, group.now, life, group.applied, 2.0))


def replacing() -> Paxos:
    """A leader that has not heard C for too long, and has just taken D in."""
    group = leading()
    alive(group, B, C)
    passes(group, group.options.replace_after + 1, B)
    offered(group, D)
    alive(group, B)
    alive(group, D, life=9)
    assert decide(group) == [NOOP, FOUR]
    return group


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
    assert decide(group) == [NOOP, FOUR]
    taken_in(group, D)
    assert decide(group, B, D) == [FOUR.removed(C)]


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
    """The other one comes first: if B lost its disk now, and C came back, A, C and D would do."""
    group = leading()
    alive(group, B, C)
    passes(group, group.options.replace_after + 1, B)
    assert list(group.state.roster.silent) == [C]
    assert decide(group) == []  # as long as nobody offers itself
    offered(group, D)
    alive(group, B)
    alive(group, D, life=9)
    assert decide(group) == [NOOP, FOUR]
    taken_in(group, D)
    assert decide(group, B, D) == [FOUR.removed(C)]
    assert decide(group, B, D) == []


def test_who_is_taken_in_beside_a_silent_member_has_answered_the_leader() -> None:
    """Three of four must be there, so it is needed at once; that it was there is not enough."""
    group = leading()
    alive(group, B, C)
    passes(group, group.options.replace_after + 1, B)
    offered(group, D)
    assert decide(group) == []
    assert group.state.roster.audience() == [B, C, D]
    alive(group, D, life=8)
    assert decide(group) == []  # that was another life
    alive(group, D, life=9)
    group.now += group.options.suspicion
    assert decide(group) == []  # and that is too long ago


def test_if_who_was_silent_comes_back_the_other_one_goes_and_is_not_taken_in_again() -> None:
    group = replacing()
    alive(group, B, C)
    taken_in(group, D)
    assert decide(group, B, C) == [FOUR.removed(D)]
    for _ in range(100):
        offered(group, D)
        alive(group, B, C)
        assert decide(group, B, C) == []


def test_nobody_else_is_taken_in_while_there_is_one_too_many() -> None:
    group = replacing()
    taken_in(group, D)
    offered(group, E)
    alive(group, E, life=9)
    assert decide(group, B, D) == [FOUR.removed(C)]
    assert decide(group, B, D) == []


def test_of_one_too_many_nobody_goes_while_no_majority_is_there() -> None:
    """D may be gone and C come back: then D should go, and C have no part in its own removal."""
    group = leading(config=Config(1, FIVE.members[:4], 3))
    alive(group, B, C, D)
    group.now += group.options.suspicion / 2
    alive(group, B)
    group.now += group.options.suspicion
    alive(group, B)
    assert list(group.state.roster.silent) == [C, D]
    assert decide(group) == []
    alive(group, C)
    assert decide(group, B, C)[-1] == group.state.membership.config
    assert group.state.membership.config.nodes() == [A, B, C]


def test_of_one_too_many_the_one_goes_that_is_silent_for_longest() -> None:
    group = leading(config=Config(1, FIVE.members, 4))
    alive(group, B, C, D, E)
    passes(group, 1, B, C, D)
    passes(group, group.options.suspicion + 1, B, C)
    assert decide(group, B, C)[-1] == group.state.membership.config
    assert group.state.membership.config.nodes() == [A, B, C, D]


def test_of_one_too_many_the_last_one_goes_if_all_are_there_but_not_the_leader() -> None:
    group = leading(me=C, config=Config(1, THREE.members, 2))
    passes(group, group.options.suspicion + 1, A, B)
    assert decide(group, A) == [NOOP, Config(2, (Member(A, 1), Member(C, 1)), 2)]


def test_a_new_leader_sends_nobody_away_before_it_can_know_who_is_silent() -> None:
    group = leading(config=Config(1, FIVE.members[:4], 3))
    alive(group, B, C)
    passes(group, group.options.suspicion / 2, B, C)
    assert decide(group) == []
    passes(group, group.options.suspicion, B, C)
    assert decide(group, B, C)[-1] == group.state.membership.config
    assert group.state.membership.config.nodes() == [A, B, C]


def test_two_silent_members_of_five_are_replaced_one_after_the_other() -> None:
    group = leading(config=FIVE)
    alive(group, B, C, D, E)
    passes(group, group.options.replace_after + 1, B, C)
    found: list[Config | int] = []
    for node in (F, G):
        offered(group, node)
        alive(group, B, C)
        alive(group, node, life=9)
        found += decide(group, B, C, F, G)
        taken_in(group, node)
        alive(group, B, C)
        found += decide(group, B, C, F, G)
    six = FIVE.added(Member(F, 9))
    again = six.removed(D).added(Member(G, 9))
    assert found == [NOOP, six, six.removed(D), again, again.removed(E)]


def test_who_was_only_just_silent_keeps_its_seat() -> None:
    group = leading()
    alive(group, B, C)
    offered(group, D)
    passes(group, group.options.suspicion + 1, B)
    assert list(group.state.roster.silent) == [C]
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
    assert list(group.state.roster.silent) == [C]
    offered(group, C, life=2)
    two = THREE.removed(C)
    assert decide(group) == [NOOP, two, two.added(Member(C, 2))]


def test_a_lost_disk_goes_before_one_that_is_only_silent() -> None:
    """Who has lost it will never vote again: the group is no weaker without it."""
    group = leading(config=Config(1, FIVE.members, 4))
    alive(group, B, C, D, E)
    passes(group, 1, B, C, D)
    passes(group, group.options.suspicion, B, C)
    passes(group, 0.5, B, C)
    offered(group, D, life=2)
    assert list(group.state.roster.silent) == [E, D]
    assert decide(group, B, C)[-1] == group.state.membership.config
    assert group.state.membership.config.nodes() == [A, B, C, E]


def test_who_is_far_behind_is_told_of_what_is_chosen_before_it_gets_a_seat() -> None:
    group = leading(config=Config(1, THREE.members[:2], 3))
    alive(group, B)
    assert group.leader.term is not None
    group.state.progress.applied = group.options.window_slots
    offered(group, D, applied=0)
    assert group.leader.term.changing is None
    assert group.state.roster.audience() == [B, D]
    hear(group, D, Heard(group.leader.term.ballot, group.now, 9, group.applied, 2.0))
    group.reconfiguration.look()
    assert group.leader.term.queue or group.leader.term.in_flight


def test_nobody_is_sent_away_if_no_majority_would_be_left() -> None:
    group = leading()
    alive(group, B, C)
    passes(group, group.options.suspicion + 1, B)
    assert list(group.state.roster.silent) == [C]
    group.request(Change(remove=B))
    assert decide(group) == []
    assert group.state.roster.changes == []


def test_no_member_is_removed_while_another_one_has_lost_its_disk() -> None:
    """REP-2: the seated life of C will never vote again, so B must stay until C is replaced."""
    group = leading()
    alive(group, B, C)
    offered(group, C, life=2)
    group.drain()
    group.request(Change(remove=B))
    assert group.drain() == []
    assert group.state.roster.changes == []
    assert (queued(group), group.state.membership.config) == ([], THREE)


def test_the_member_that_has_lost_its_disk_can_be_removed_at_once() -> None:
    """REP-2"""
    group = leading()
    alive(group, B, C)
    offered(group, C, life=2)
    group.request(Change(remove=C))
    assert decide(group)[:2] == [NOOP, THREE.removed(C)]


def test_a_surplus_member_stays_while_another_one_has_lost_its_disk() -> None:
    """REP-2: A and B could decide nothing, if C went before the lost life of B."""
    group = leading(config=Config(1, THREE.members, 2))
    passes(group, group.options.suspicion - 0.5, B, C)
    offered(group, B, life=2)
    passes(group, 1.5, C)
    assert decide(group) == []
    passes(group, 1, C)
    assert list(group.state.roster.silent) == [B]
    assert decide(group, C) == [NOOP, Config(2, (Member(A, 1), Member(C, 1)), 2)]


def test_the_offer_of_a_lost_disk_is_noted_however_many_nodes_offer_themselves() -> None:
    """REP-2"""
    group = leading()
    alive(group, B, C)
    for at in range(OFFERS_MAX):
        offered(group, NodeId(f"n{at}"))
    offered(group, C, life=2)
    offered(group, D)
    assert group.state.roster.offers[C].member == Member(C, 2)
    assert D not in group.state.roster.offers


def test_silence_is_told_and_its_end_too() -> None:
    group = leading()
    alive(group, B, C)
    passes(group, group.options.suspicion, B)
    group.now += 0.5
    group.timeout(BeatDue())
    assert Suspected(C, True) in events(group.drain())
    assert group.leader.term is not None
    heard = hear(group, C, Heard(group.leader.term.ballot, group.now, 1, 0, 2.0))
    assert events(heard) == [Suspected(C, False)]


# -- outside --


def outsider(options: GroupOptions = OPTIONS) -> Paxos:
    group = asleep(D, NO_MEMBERS, options)
    group.state.membership.contacts = (A, B)
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
    effects = group.drain()
    assert [to for to, _ in sends(effects)] == [A, B]
    assert events(effects) == [LeaderChanged(NodeId(""))]  # nor sends any client there


def test_an_outsider_that_learns_of_its_seat_offers_itself_no_more() -> None:
    group = outsider()
    group.state.membership.incarnation = 9
    seat = Item(CONFIG, encode_config(THREE.added(Member(D, 9))))
    hear(group, A, Beat(ballot(1), 2, 1.0))
    hear(group, A, Chosen(1, (command(b"x"), seat)))
    assert group.state.membership.is_member
    group.timeout(OfferDue())
    assert group.drain() == []
