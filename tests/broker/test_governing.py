"""Any node shows its group. Only the leader changes the group, and refuses harmful changes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from oncecast.broker.governing import (
    PENDING_MAX,
    GovernDue,
    Governor,
    Healing,
    News,
    has_quorum,
    refusal,
    role_of,
    sized,
    view_of,
)
from oncecast.kernel.protocol import Ask, Emit, Later, NodeId, Send, Value, Watch
from oncecast.replication.events import (
    Added,
    Change,
    HandOver,
    Installed,
    LeaderChanged,
    Mended,
    Removed,
    Suspected,
)
from oncecast.replication.messages import Canvass
from oncecast.replication.paxos import SENDERS_MAX, Paxos
from oncecast.replication.quorum import Config, Member
from oncecast.replication.roster import Offered
from oncecast.wire.errors import InvalidArgument, Overloaded
from oncecast.wire.frames import (
    Answer,
    Elsewhere,
    Govern,
    GroupView,
    LookGroup,
    LookRing,
    MemberView,
    RingView,
)

A, B, C, D = map(NodeId, "abcd")
ANN = NodeId("client/ann")


class Governed(Governor):
    """A replica's governor, whose state the test controls."""

    def __init__(self, paxos: Paxos) -> None:
        super().__init__(A, Random(0), group=paxos.status)
        self.paxos, self.state = paxos, paxos.state


def governor(
    leader: NodeId = A, members: str = "abc", silent: str = "", *, leased: bool = True
) -> Governed:
    """Return the governor of node a. With `leased`, the node has a lease whenever it leads."""
    group = Paxos(A, Random(0), incarnation=1)
    if leased:
        group.leader.leads = lambda now: group.status.leader == A  # type: ignore[method-assign]
    lives = {"a": 1, "b": 2, "c": 3, "d": 4}
    made = tuple(Member(NodeId(each), lives[each]) for each in members)
    group.state.membership.history.start(0, Config(5, made, 3))
    group.state.following.leader, group.state.progress.applied = leader, 40
    group.state.roster.silent.update(dict.fromkeys(map(NodeId, silent)))
    group.state.roster.reported[Member(B, 2)] = 39
    return Governed(group)


def answered(made: Governor, message: LookGroup | Govern) -> Value:
    made.drain()
    made.receive(ANN, message)
    (send,) = [each for each in made.drain() if isinstance(each, Send)]
    assert send.to == ANN
    return send.message


def refused(made: Governor, change: Change | HandOver) -> str:
    answer = answered(made, Govern(7, change))
    assert isinstance(answer, Answer)
    assert isinstance(answer.result, InvalidArgument)
    return answer.result.fact


def test_leader_shows_all_members() -> None:
    """REP-3"""
    made = governor(silent="c", leased=False)
    made.state.roster.offers[D] = Offered(Member(D, 4), 0, 0.0)
    made.now, made.paxos.last_message[B] = 12.0, 10.0
    made.state.membership.known_level, made.state.roster.levels[Member(B, 2)] = 2, 3
    assert answered(made, LookGroup(3)) == GroupView(
        id=3,
        node="a",
        leader="a",
        quorum=False,
        version=5,
        size=3,
        applied=40,
        members=(
            MemberView("a", 1, 40, False, reachable=True, heard=0.0, level=2),
            MemberView("b", 2, 39, False, reachable=True, heard=2.0, level=3),
            MemberView("c", 3, -1, True, reachable=False),
        ),
        offers=("d",),
        level=1,
    )


def test_follower_shows_its_local_view() -> None:
    seen = answered(governor(leader=B, silent="c"), LookGroup(3))
    assert isinstance(seen, GroupView)
    assert (seen.node, seen.leader, seen.offers) == ("a", "b", ())
    assert [(each.applied, each.silent) for each in seen.members] == [
        (40, False),
        (-1, False),
        (-1, False),
    ]


def reached(made: Governor, now: float) -> list[tuple[bool, bool | None, float]]:
    made.now = now
    seen = answered(made, LookGroup(3))
    assert isinstance(seen, GroupView)
    return [(each.silent, each.reachable, each.heard) for each in seen.members]


def test_follower_reports_only_its_leader_as_reachable() -> None:
    """REP-2: a follower gets no messages from other followers."""
    made = governor(leader=B)
    made.state.following.heard = made.paxos.last_message[B] = 10.0
    here, there = (False, True, 0.0), (False, True, 1.0)
    assert reached(made, 11.0) == [here, there, (False, None, -1.0)]


def test_node_without_a_leader_shows_silent_members() -> None:
    """REP-2: members count as silent only after the election timeout."""
    made = governor(leader=NodeId(""))
    made.state.following.heard = made.paxos.last_message[B] = 10.0
    here = (False, True, 0.0)
    assert reached(made, 11.0) == [here, (False, True, 1.0), (False, None, -1.0)]
    assert reached(made, 14.0) == [here, (True, False, 4.0), (True, False, -1.0)]
    made.state.roster.silent[C] = None  # this node suspected C while it led
    assert reached(made, 11.0) == [here, (False, True, 1.0), (True, False, -1.0)]
    made.paxos.last_message[C] = 13.0
    assert reached(made, 14.0) == [here, (True, False, 4.0), (False, True, 1.0)]


def test_any_message_from_a_member_updates_its_last_message_time() -> None:
    """REP-2"""
    group = governor(leader=NodeId("")).paxos
    group.now = 7.0
    group.receive(C, Canvass(1, 0))
    assert group.last_message == {C: 7.0}


def test_unknown_senders_do_not_evict_the_last_message_times_of_members() -> None:
    """REP-2: a sender may join later, so its message is recorded as well."""
    group = governor(leader=NodeId("")).paxos
    group.receive(B, Canvass(1, 0))
    for number in range(SENDERS_MAX + 10):
        group.now += 1.0
        group.receive(NodeId(f"stranger {number}"), Canvass(1, 0))
    group.receive(C, Canvass(1, 0))
    assert len(group.last_message) == SENDERS_MAX
    assert (group.last_message[B], group.last_message[C]) == (0.0, group.now)
    assert f"stranger {SENDERS_MAX + 9}" in group.last_message


def test_group_has_a_quorum_while_a_leader_sends_messages() -> None:
    made = governor(leader=B)
    group, following = made.group, made.state.following
    following.heard = 10.0
    assert has_quorum(group, 12.0)
    assert not has_quorum(group, 13.0)
    following.leader = NodeId("")
    assert not has_quorum(group, 10.0)


def test_node_reports_its_role_in_the_group() -> None:
    assert role_of(governor().group) == "leader"
    assert role_of(governor(leader=B).group) == "replica"
    assert role_of(governor(leader=B, members="bc").group) == "joining"


def test_follower_redirects_a_change_to_the_leader() -> None:
    change = Govern(7, HandOver(B))
    assert answered(governor(leader=B), change) == Elsewhere("b", ("a", "b", "c"))


@pytest.mark.parametrize(
    ("change", "silent", "event", "asked"),
    [
        (Change(add=D), "", Added(D), Change(add=D, size=4)),
        (Change(remove=C), "", Removed(C), Change(remove=C, size=2)),
        (Change(remove=C), "c", Removed(C), Change(remove=C, size=3)),
        (Change(add=D, remove=B), "c", Removed(B), Change(add=D, remove=B, size=3)),
    ],
)
def test_change_is_proposed_once_and_answered_when_done(
    change: Change, silent: str, event: Value, asked: Change
) -> None:
    """REP-4"""
    made = governor(silent=silent)
    made.state.roster.offers[D] = Offered(Member(D, 4), 0, 0.0)
    made.receive(ANN, Govern(7, change))
    assert made.drain() == [Watch(ANN), Ask(asked)]
    made.receive(ANN, Govern(7, change))
    assert made.drain() == []
    made.observe(Suspected(B, True))
    assert [each for each in made.drain() if isinstance(each, Send)] == []

    members = [each for each in made.group.config.members if each.node != change.remove]
    members += [Member(D, 4)] if change.add else []
    made.state.membership.history.decided(41, Config(6, tuple(members), asked.size))
    made.observe(event)  # type: ignore[arg-type]
    (send,) = [each for each in made.drain() if isinstance(each, Send)]
    assert isinstance(send.message, GroupView)
    assert (send.to, send.message.id, send.message.version) == (ANN, 7, 6)


def test_leader_that_steps_down_redirects_its_client() -> None:
    made = governor()
    made.receive(ANN, Govern(7, HandOver(B)))
    assert made.drain() == [Watch(ANN), Ask(HandOver(B))]
    made.state.following.leader = NodeId("")
    made.observe(LeaderChanged(NodeId("")))
    assert Send(ANN, Elsewhere("", ("a", "b", "c")), 0) in made.drain()
    made.state.following.leader = B
    made.observe(LeaderChanged(B))
    assert [each for each in made.drain() if isinstance(each, Send)] == []


def test_change_without_effect_is_answered_at_once() -> None:
    for change in (HandOver(A), Change(add=B), Change(remove=D)):
        assert isinstance(answered(governor(), Govern(7, change)), GroupView)


def test_harmful_change_is_refused_with_a_remedy() -> None:
    """REP-4"""
    assert "has not asked to join; start it with --join a" in refused(governor(), Change(add=D))
    assert "is the only replica" in refused(governor(members="a"), Change(remove=A))
    assert refused(governor(silent="c"), Change(remove=B)) == (
        "without b, only 1 of 2 replicas would be up, which is not a majority; "
        "bring back or remove c first"
    )
    assert "is not a replica of this group; choose one of a, b, c" in refused(
        governor(), HandOver(D)
    )
    assert "does not answer" in refused(governor(silent="b"), HandOver(B))


def test_no_member_can_be_removed_while_another_has_lost_its_disk() -> None:
    """REP-4"""
    made = governor()
    made.state.roster.offers[C] = Offered(Member(C, 9), 0, 0.0)
    assert refused(made, Change(remove=B)) == (
        "without b, only 1 of 2 replicas would be up, which is not a majority; "
        "wait until c, which lost its disk, is a member again"
    )
    assert "does not answer" in refused(made, HandOver(C))
    made.receive(ANN, Govern(8, Change(remove=C)))
    assert Ask(Change(remove=C, size=2)) in made.drain()


def test_pending_changes_are_bounded_and_dropped_with_their_client() -> None:
    made = governor()
    for number in range(PENDING_MAX):
        made.receive(ANN, Govern(number, HandOver(B)))
    assert len(made._pending) == PENDING_MAX == 64
    answer = answered(made, Govern(PENDING_MAX, HandOver(B)))
    assert len(made._pending) == PENDING_MAX
    assert answer == Answer(PENDING_MAX, Overloaded("pending group changes"))
    made.down(ANN)
    made.receive(ANN, Govern(PENDING_MAX, HandOver(B)))
    assert Ask(HandOver(B)) in made.drain()


def test_group_events_are_reported() -> None:
    """REP-3"""
    made = governor()
    for event in (LeaderChanged(B), Added(D), Removed(C), Suspected(B, True), Suspected(B, False)):
        made.observe(event)
    made.observe(Mended(3))
    made.observe(Installed(3, ()))
    made.observe(LeaderChanged(NodeId("")))
    assert [each.event for each in made.drain() if isinstance(each, Emit)] == [
        News("leader", "b"),
        News("added", "d"),
        News("removed", "c"),
        News("suspected", "b"),
        News("heard_again", "b"),
        News("refilled"),
        News("installed"),
        News("leader", ""),
    ]
    assert made.elections == 1


def test_group_outside_a_ring_shows_an_empty_ring() -> None:
    """REP-3"""
    made = governor()
    made.receive(ANN, LookRing(3))
    assert made.drain() == [Send(ANN, RingView(3, A, (), (), None))]


def test_replica_with_a_damaged_disk_reports_its_recovery() -> None:
    """REP-1"""
    made = governor()
    made.start()
    assert made.drain() == []
    made.state.votes.damage = "records 1 to 2 of its log cannot be read"
    made.start()
    again = Later(made.group.options.heartbeat, Healing())
    assert made.drain() == [again]
    state = made.state
    whole: tuple[NodeId, int, dict[int, Any]] = (B, 40, {})
    lacks: list[tuple[NodeId, int, dict[int, Any]]]
    lacks = [(NodeId(""), 40, {}), (B, 41, {}), (B, 40, {3: {}})]
    for lack in lacks:
        state.following.leader, state.progress.known, state.fetching.holes = lack
        made.timeout(Healing())
        assert made.drain() == [again]
    state.following.leader, state.progress.known, state.fetching.holes = whole
    outside = governor(leader=B, members="bc")
    outside.timeout(Healing())
    assert outside.drain() == [again]
    made.timeout(Healing())
    assert made.drain() == [Emit(News("refilled"))]


def test_event_is_reported_before_the_change_is_answered() -> None:
    """REP-4: each change is answered separately."""
    made = governor()
    made.state.roster.offers[D] = Offered(Member(D, 4), 0, 0.0)
    made.receive(ANN, Govern(7, HandOver(B)))
    made.receive(ANN, Govern(8, Change(size=5)))
    made.drain()
    made.state.membership.history.decided(41, Config(6, made.group.config.members, 5))
    made.observe(Suspected(C, True))
    assert made.drain() == [
        Emit(News("suspected", "c")),
        Send(ANN, view_of(made.group, 0.0, 8)),
    ]
    assert list(made._pending) == [(ANN, 7)]


def test_finished_change_is_answered_when_the_lease_is_renewed() -> None:
    """REP-4"""
    made = governor()
    leased = True
    made.paxos.leader.leads = lambda now: leased  # type: ignore[method-assign]
    made.receive(ANN, Govern(8, Change(size=5)))
    made.drain()
    leased = False
    made.state.membership.history.decided(41, Config(6, made.group.config.members, 5))
    made.observe(Mended(3))
    assert made.drain() == [Emit(News("refilled")), Later(0.02, GovernDue())]
    leased = True
    made.timeout(GovernDue())
    assert made.drain() == [Send(ANN, view_of(made.group, 0.0, 8))]


def test_quorum_and_reachability_time_out_exactly() -> None:
    """REP-2: the limits are 2.5 and 3 seconds if the suspicion time is 2 seconds."""
    made = governor(leader=B)
    made.state.following.heard = made.paxos.last_message[C] = 10.0
    assert [has_quorum(made.group, now) for now in (12.5, 12.6)] == [True, False]
    made.state.roster.silent[C] = None
    assert [reached(made, now)[2][1] for now in (13.0, 13.1)] == [True, None]
    made.state.following.leader = NodeId("")
    del made.state.roster.silent[C], made.paxos.last_message[C]
    assert [reached(made, now)[2][1] for now in (13.0, 13.1)] == [None, False]
    assert view_of(made.group, 0.0).id == 0


@pytest.mark.parametrize(
    ("members", "silent", "change", "size"),
    [
        ("abc", "", Change(add=D), 4),
        ("ab", "", Change(add=D), 3),
        ("abcd", "", Change(add=NodeId("e")), 4),
        ("abc", "", Change(add=D, size=7), 7),
        ("abc", "", Change(remove=C), 2),
        ("abcd", "", Change(remove=C), 2),
        ("abc", "c", Change(remove=C), 3),
        ("abc", "", Change(remove=C, size=7), 7),
        ("abc", "", Change(add=D, remove=C), 3),
        ("abc", "", Change(size=5), 5),
        ("ab", "", Change(), 3),
        ("abc", "", Change(), 3),
    ],
)
def test_membership_change_sets_the_matching_group_size(
    members: str, silent: str, change: Change, size: int
) -> None:
    """REP-4"""
    assert sized(governor(members=members, silent=silent).group, change) == replace(
        change, size=size
    )


def test_feasible_change_is_accepted() -> None:
    """REP-4"""
    made = governor()
    group = made.group
    made.state.roster.offers[D] = Offered(Member(D, 4), 0, 0.0)
    for change in (
        HandOver(B),
        Change(add=D),
        Change(remove=C),
        Change(remove=D),
        Change(add=D, remove=C),
        Change(size=5),
    ):
        assert refusal(group, change) == ""
    made.state.roster.silent[B] = None
    assert refusal(group, Change(add=B, remove=C)).startswith("without c, only 1 of 2 replicas")


@pytest.mark.parametrize(
    ("members", "change", "why"),
    [
        ("abc", Change(size=-1), "a group cannot have -1 replicas"),
        ("abc", Change(size=2**63), "a group cannot have 9223372036854775808 replicas (limit 9)"),
        ("abc", Change(size=10), "choose 1 to 9"),
        ("abc", Change(remove=C, size=-1), "a group cannot have -1 replicas"),
        ("abcdefghi", Change(add=NodeId("x")), "a group cannot have 10 replicas"),
        ("abc", Change(size=1), "the group has 3 replicas; remove one by name"),
        ("abc", Change(size=1, force=True), "the group has 3 replicas; remove one by name"),
        ("abc", Change(size=4), "tolerates no more failures than one of 3; choose an odd"),
        ("a", Change(size=1), "a group of 1 tolerates no failure; choose 3"),
        ("ab", Change(size=2), "a group of 2 tolerates no failure; choose 3"),
        ("abc", Change(size=4, force=True), ""),
        ("a", Change(size=1, force=True), ""),
        ("abc", Change(size=9), ""),
        ("abc", Change(remove=C), ""),
    ],
)
def test_invalid_group_size_is_refused(members: str, change: Change, why: str) -> None:
    """SEC-3: a client cannot remove the redundancy of a group, or crash it."""
    group = governor(members="a").group
    made = tuple(Member(NodeId(each), 1) for each in members)
    config = Config(5, made, max(3, len(members)))
    group._state.membership.history.start(0, config)
    group._state.roster.note_offer(Member(NodeId("x"), 1), 0, 0)
    assert why in refusal(group, change)
    assert bool(refusal(group, change)) is bool(why)
