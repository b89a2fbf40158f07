"""REP-2: the membership changes through the log, by one member at a time."""

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
    ballot,
    command,
    events,
    hear,
    leading,
    sends,
    sync,
    unstarted,
)

FOUR = THREE.added(Member(D, 9))
FIVE = Config(1, tuple(Member(node, 1) for node in (A, B, C, D, E)), 5)


def alive(group: Paxos, *nodes: NodeId, incarnation: int = 1, seconds: float = 0.1) -> None:
    """Send a Beat some time after the last one, and answer it as these nodes."""
    group.now += seconds
    group.timeout(BeatDue())
    group.drain()
    assert group.leader.term is not None
    for node in nodes:
        hear(
            group, node, Heard(group.leader.term.ballot, group.now, incarnation, group.applied, 2.0)
        )


def passes(group: Paxos, seconds: float, *nodes: NodeId) -> None:
    """Let time pass while only these nodes answer."""
    for _ in range(int(2 * seconds)):
        alive(group, *nodes, seconds=0.5)


def decide(group: Paxos, *nodes: NodeId) -> list[Config | int]:
    """Accept all proposals as B or as these nodes; return their memberships or kinds."""
    found: list[Config | int] = []
    group.reconfiguration.look()
    report(group, *(nodes or (B,)))
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
        report(group, *(nodes or (B,)))
        if group.applied < slot:
            break  # these nodes are not a majority
    return found


def report(group: Paxos, *nodes: NodeId) -> None:
    """Answer the Beat of a leader that waits before it removes a member."""
    for node, incarnation in group.state.membership.config.members:
        term = group.leader.term
        if node in nodes and term is not None and term.removing > group.applied:
            hear(group, node, Heard(term.ballot, group.now, incarnation, group.applied, 2.0))


def queued(group: Paxos) -> list[Item]:
    """Return the items that wait to be proposed."""
    assert group.leader.term is not None
    return [item for _, item in group.leader.term.queue]


def joined(group: Paxos, node: NodeId, incarnation: int = 9) -> None:
    """Deliver a promise and a heartbeat reply from `node`, a new member that has caught up."""
    assert group.leader.term is not None
    hear(group, node, Promise(group.leader.term.ballot, incarnation, 1, group.applied, (), ()))
    hear(group, node, Heard(group.leader.term.ballot, group.now, incarnation, group.applied, 2.0))


def replacing() -> Paxos:
    """Return a leader that has not heard from C for too long, and has just added D."""
    group = leading()
    alive(group, B, C)
    passes(group, group.options.replace_after + 1, B)
    offered(group, D)
    alive(group, B)
    alive(group, D, incarnation=9)
    assert decide(group) == [NOOP, FOUR]
    return group


def offered(group: Paxos, node: NodeId, incarnation: int = 9, applied: int = 0) -> None:
    group.receive(node, Offer(incarnation, applied))


def answered(group: Paxos, node: NodeId, incarnation: int = 9) -> None:
    """Answer a Beat as the newcomer that the leader lets catch up."""
    assert group.leader.term is not None
    assert group.state.roster.newcomer == node
    hear(group, node, Heard(group.leader.term.ballot, group.now, incarnation, group.applied, 2.0))


def test_membership_change_waits_for_a_slot_decided_under_the_current_membership() -> None:
    """Otherwise a leader with a lower ballot could decide a slot after the change."""
    group = leading()
    alive(group, B, C)
    group.request(Change(remove=C))
    assert decide(group) == [NOOP, THREE.removed(C)]


def test_adding_and_removing_a_member_takes_two_steps() -> None:
    group = leading()
    alive(group, B, C)
    offered(group, D)
    group.request(Change(add=D, remove=C))
    answered(group, D)
    assert decide(group) == [NOOP, FOUR]
    joined(group, D)
    assert decide(group, B, D) == [FOUR.removed(C)]


def test_newcomer_is_added_to_an_incomplete_group() -> None:
    group = leading(config=Config(1, THREE.members[:2], 3))
    alive(group, B)
    offered(group, D)
    assert decide(group) == []
    answered(group, D)
    assert decide(group)[-1] == Config(2, (*THREE.members[:2], Member(D, 9)), 3)


def test_newcomer_is_not_added_to_a_complete_group() -> None:
    group = leading()
    alive(group, B, C)
    offered(group, D)
    assert decide(group) == []


def test_newcomer_replaces_a_member_that_has_been_silent_for_too_long() -> None:
    """D joins first: if B then lost its disk and C came back, A, C and D would be a majority."""
    group = leading()
    alive(group, B, C)
    passes(group, group.options.replace_after + 1, B)
    assert list(group.state.roster.silent) == [C]
    assert decide(group) == []  # no node has offered itself
    offered(group, D)
    alive(group, B)
    alive(group, D, incarnation=9)
    assert decide(group) == [NOOP, FOUR]
    joined(group, D)
    assert decide(group, B, D) == [FOUR.removed(C)]
    assert decide(group, B, D) == []


def test_newcomer_is_added_beside_a_silent_member_only_after_it_answers_the_leader() -> None:
    """Three of four members must be up, so the newcomer is needed at once."""
    group = leading()
    alive(group, B, C)
    passes(group, group.options.replace_after + 1, B)
    offered(group, D)
    assert decide(group) == []
    assert group.state.roster.audience() == [B, C, D]
    alive(group, D, incarnation=8)
    assert decide(group) == []  # the answer is from another incarnation
    assert group.leader.term is not None
    group.leader.term.ends[Member(D, 9)] = group.now
    assert decide(group) == []  # the answer was too long ago
    alive(group, D, incarnation=9)
    assert decide(group) == [NOOP, FOUR]


def test_newcomer_is_removed_again_if_the_silent_member_comes_back() -> None:
    group = replacing()
    alive(group, B, C)
    joined(group, D)
    assert decide(group, B, C) == [FOUR.removed(D)]
    for _ in range(100):
        offered(group, D)
        alive(group, B, C)
        assert decide(group, B, C) == []


def test_no_node_is_added_while_the_group_has_a_surplus_member() -> None:
    group = replacing()
    joined(group, D)
    offered(group, E)
    alive(group, E, incarnation=9)
    assert decide(group, B, D) == [FOUR.removed(C)]
    assert decide(group, B, D) == []


def test_surplus_member_stays_while_no_majority_is_up() -> None:
    """If D disappears and C comes back, D must be removed, not C."""
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


def test_member_with_the_longest_silence_is_removed_as_surplus() -> None:
    group = leading(config=Config(1, FIVE.members, 4))
    alive(group, B, C, D, E)
    passes(group, 1, B, C, D)
    passes(group, group.options.suspicion + 1, B, C)
    assert decide(group, B, C)[-1] == group.state.membership.config
    assert group.state.membership.config.nodes() == [A, B, C, D]


def test_last_member_except_the_leader_is_removed_as_surplus_if_all_are_up() -> None:
    group = leading(me=C, config=Config(1, THREE.members, 2))
    passes(group, group.options.suspicion + 1, A, B)
    assert decide(group, A) == [NOOP, Config(2, (Member(A, 1), Member(C, 1)), 2)]


def test_new_leader_waits_for_the_suspicion_time_before_it_removes_a_member() -> None:
    group = leading(config=Config(1, FIVE.members[:4], 3))
    alive(group, B, C)
    passes(group, group.options.suspicion / 2, B, C)
    assert decide(group) == []
    passes(group, group.options.suspicion, B, C)
    assert decide(group, B, C)[-1] == group.state.membership.config
    assert group.state.membership.config.nodes() == [A, B, C]


def test_two_silent_members_out_of_five_are_replaced_one_after_the_other() -> None:
    group = leading(config=FIVE)
    alive(group, B, C, D, E)
    passes(group, group.options.replace_after + 1, B, C)
    found: list[Config | int] = []
    for node in (F, G):
        offered(group, node)
        alive(group, B, C)
        alive(group, node, incarnation=9)
        found += decide(group, B, C, F, G)
        joined(group, node)
        alive(group, B, C)
        found += decide(group, B, C, F, G)
    six = FIVE.added(Member(F, 9))
    again = six.removed(D).added(Member(G, 9))
    assert found == [NOOP, six, six.removed(D), again, again.removed(E)]


def test_briefly_silent_member_is_not_replaced() -> None:
    group = leading()
    alive(group, B, C)
    offered(group, D)
    passes(group, group.options.suspicion + 1, B)
    assert list(group.state.roster.silent) == [C]
    offered(group, D)
    assert decide(group) == []


def test_new_incarnation_replaces_a_member_once_the_old_incarnation_is_silent() -> None:
    """The disk was lost. While the old incarnation sends messages, the offer is out of date."""
    group = leading()
    alive(group, B, C)
    offered(group, C, incarnation=2)
    assert decide(group) == []
    passes(group, group.options.suspicion + 1, B)
    alive(group, C, incarnation=2)  # this incarnation is not a member
    assert list(group.state.roster.silent) == [C]
    offered(group, C, incarnation=2)
    two = THREE.removed(C)
    assert decide(group) == [NOOP, two, two.added(Member(C, 2))]


def test_member_with_a_lost_disk_is_removed_before_a_silent_member() -> None:
    """The lost disk will never vote again, so the removal does not weaken the group."""
    group = leading(config=Config(1, FIVE.members, 4))
    alive(group, B, C, D, E)
    passes(group, 1, B, C, D)
    passes(group, group.options.suspicion, B, C)
    passes(group, 0.5, B, C)
    offered(group, D, incarnation=2)
    assert list(group.state.roster.silent) == [E, D]
    assert decide(group, B, C)[-1] == group.state.membership.config
    assert group.state.membership.config.nodes() == [A, B, C, E]


def test_newcomer_that_is_far_behind_gets_beats_before_it_is_added() -> None:
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


def test_member_is_not_removed_if_this_would_leave_no_majority() -> None:
    group = leading()
    alive(group, B, C)
    passes(group, group.options.suspicion + 1, B)
    assert list(group.state.roster.silent) == [C]
    group.request(Change(remove=B))
    assert decide(group) == []
    assert group.state.roster.changes == []


def test_no_member_can_be_removed_while_another_has_lost_its_disk() -> None:
    """REP-2: the old incarnation of C will never vote again, so B must stay until C is replaced."""
    group = leading()
    alive(group, B, C)
    offered(group, C, incarnation=2)
    group.drain()
    group.request(Change(remove=B))
    assert group.drain() == []
    assert group.state.roster.changes == []
    assert (queued(group), group.state.membership.config) == ([], THREE)


def test_member_that_has_lost_its_disk_can_be_removed_at_once() -> None:
    """REP-2"""
    group = leading()
    alive(group, B, C)
    offered(group, C, incarnation=2)
    group.request(Change(remove=C))
    assert decide(group)[:2] == [NOOP, THREE.removed(C)]


def test_surplus_member_stays_while_another_member_has_lost_its_disk() -> None:
    """REP-2: if C went before the old incarnation of B, A and B could decide nothing."""
    group = leading(config=Config(1, THREE.members, 2))
    passes(group, group.options.suspicion - 0.5, B, C)
    offered(group, B, incarnation=2)
    passes(group, 1.5, C)
    assert decide(group) == []
    passes(group, 1, C)
    assert list(group.state.roster.silent) == [B]
    assert decide(group, C) == [NOOP, Config(2, (Member(A, 1), Member(C, 1)), 2)]


def test_offer_from_a_member_that_lost_its_disk_is_always_kept() -> None:
    """REP-2"""
    group = leading()
    alive(group, B, C)
    for at in range(OFFERS_MAX):
        offered(group, NodeId(f"n{at}"))
    offered(group, C, incarnation=2)
    offered(group, D)
    assert group.state.roster.offers[C].member == Member(C, 2)
    assert D not in group.state.roster.offers


def test_leader_reports_when_a_member_falls_silent_and_when_it_answers_again() -> None:
    group = leading()
    alive(group, B, C)
    passes(group, group.options.suspicion, B)
    group.now += 0.5
    group.timeout(BeatDue())
    assert Suspected(C, True) in events(group.drain())
    assert group.leader.term is not None
    heard = hear(group, C, Heard(group.leader.term.ballot, group.now, 1, 0, 2.0))
    assert events(heard) == [Suspected(C, False)]


# -- non-members --


def outsider(options: GroupOptions = OPTIONS) -> Paxos:
    group = unstarted(D, NO_MEMBERS, options)
    group.state.membership.contacts = (A, B)
    group.start()
    group.drain()
    group.now = 100.0
    return group


def test_non_member_offers_itself_to_its_contacts_then_to_the_named_leader() -> None:
    group = outsider()
    group.timeout(OfferDue())
    assert [to for to, _ in sends(group.drain())] == [A, B]
    hear(group, A, Guide(C, THREE))
    group.timeout(OfferDue())
    assert [to for to, _ in sends(group.drain())] == [C]
    group.timeout(OfferDue())  # C did not answer
    assert [to for to, _ in sends(group.drain())] == [A, B, C]


def test_non_member_does_not_wait_for_a_silent_leader() -> None:
    group = outsider()
    hear(group, A, Guide(C, NO_MEMBERS.added(Member(C, 0))))
    hear(group, C, Beat(ballot(1, C), 0, 1.0))
    group.timeout(OfferDue())
    assert [to for to, _ in sends(group.drain())] == [C]
    group.now += 2 * group.options.suspicion
    group.timeout(OfferDue())
    effects = group.drain()
    assert [to for to, _ in sends(effects)] == [C, A, B]
    assert events(effects) == [LeaderChanged(NodeId(""))]  # clients are not redirected there


def test_non_member_stops_offering_itself_once_it_is_a_member() -> None:
    group = outsider()
    group.state.membership.incarnation = 9
    seat = Item(CONFIG, encode_config(THREE.added(Member(D, 9))))
    hear(group, A, Beat(ballot(1), 2, 1.0))
    hear(group, A, Chosen(1, (command(b"x"), seat)))
    assert group.state.membership.is_member
    group.timeout(OfferDue())
    assert group.drain() == []
