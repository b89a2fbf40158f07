"""REP-4: a leader that is about to stop hands over to the most advanced follower."""

from __future__ import annotations

import pytest

from oncecast.kernel.protocol import Emit, Later, NodeId, Send, Unwatch, Watch
from oncecast.replication.events import LeaderChanged, Retire, Retired
from oncecast.replication.messages import (
    Accept,
    Beat,
    BeatDue,
    Canvass,
    Heard,
    Offer,
    Prepare,
    Promise,
    Release,
    Silence,
)
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Config, Member
from tests.replication.replicas import (
    THREE,
    A,
    B,
    C,
    ballot,
    command,
    events,
    hear,
    leading,
    sends,
    started,
)

NO_NODE = NodeId("")


def led(b_applied: int, c_applied: int) -> Paxos:
    """Return leader A, to which B and C have reported their applied slots."""
    group = leading()
    group.now += 0.1
    group.timeout(BeatDue())
    assert group.leader.term is not None
    for node, applied in ((B, b_applied), (C, c_applied)):
        hear(group, node, Heard(group.leader.term.ballot, group.now, 1, applied, 2.0))
    group.drain()
    return group


def test_leader_hands_over_to_the_most_advanced_follower() -> None:
    group = led(5, 7)
    assert group.leader.term is not None
    won = group.leader.term.ballot
    group.request(Retire())
    effects = group.drain()
    assert [(to, m) for to, m in sends(effects) if isinstance(m, Release)] == [
        (B, Release(won, C)),
        (C, Release(won, C)),
    ]
    assert Watch(C) in effects
    assert events(effects) == [LeaderChanged(NO_NODE)]
    assert group.leader.term is None


@pytest.mark.parametrize(
    ("reported", "successor"),
    [({B: 7, C: 5}, B), ({B: 5, C: 7}, C), ({B: 0}, B), ({C: 0}, B), ({C: 1}, C)],
)
def test_leader_hands_over_to_a_follower_without_a_report_only_as_a_last_resort(
    reported: dict[NodeId, int], successor: NodeId
) -> None:
    group = led(0, 0)
    group.state.roster.reported = {Member(node, 1): applied for node, applied in reported.items()}
    group.request(Retire())
    releases = [m for _, m in sends(group.drain()) if isinstance(m, Release)]
    assert [each.successor for each in releases] == [successor, successor]


def test_retirement_is_reported_at_once_and_ends_the_watch() -> None:
    """The report does not wait for the disk."""
    group = led(5, 7)
    group.request(Retire())
    group.drain()
    effects = hear(group, C, Beat(ballot(9, C), 0, 1.0))
    assert [each for each in effects if isinstance(each, Unwatch)] == [Unwatch(C)]
    assert group.after > 0
    assert Emit(Retired(C), after=0) in effects


def test_leader_may_stop_when_the_next_leader_sends_a_message() -> None:
    group = led(5, 7)
    group.request(Retire())
    group.drain()
    effects = hear(group, C, Prepare(ballot(9, C), 1))
    assert [type(message) for _, message in sends(effects)] == [Promise]
    effects = hear(group, C, Beat(ballot(9, C), 0, 1.0))
    assert events(effects) == [LeaderChanged(C), Retired(C)]
    assert Retired(C) not in events(hear(group, C, Beat(ballot(9, C), 0, 2.0)))


def test_leader_asks_the_next_follower_if_the_link_to_the_first_breaks() -> None:
    group = led(5, 7)
    assert group.leader.term is not None
    won = group.leader.term.ballot
    group.request(Retire())
    group.drain()
    group.down(C)
    effects = group.drain()
    assert effects == [
        Watch(B),
        Send(B, Release(won, B), after=0),
        Send(C, Release(won, B), after=0),
    ]
    group.down(NodeId("stranger"))
    assert group.drain() == []
    group.down(B)
    assert group.drain() == [Emit(Retired(NO_NODE), after=0)]


def test_broken_link_is_ignored_once_another_replica_leads() -> None:
    group = led(5, 7)
    group.request(Retire())
    hear(group, B, Beat(ballot(9, B), 0, 1.0))
    group.down(C)
    assert group.drain() == []


def test_retired_replica_never_becomes_a_candidate_again() -> None:
    group = led(5, 7)
    group.request(Retire())
    group.drain()
    group.now += 100.0
    group.timeout(Silence())
    assert group.drain() == []
    assert not [
        message
        for _, message in sends(hear(group, B, Release(ballot(9, B), A)))
        if isinstance(message, Canvass | Prepare)
    ]
    assert group.leader.term is None


def test_retired_replica_still_votes() -> None:
    group = led(0, 0)
    group.request(Retire())
    group.drain()
    effects = hear(group, C, Accept(ballot(9, C), 1, (command(b"x"),), 0))
    assert [to for to, _ in sends(effects)][:2] == [B, C]


def test_leader_does_not_hand_over_to_a_silent_follower() -> None:
    group = led(5, 7)
    group.state.roster.silent[C] = None
    group.request(Retire())
    assert [m.successor for _, m in sends(group.drain()) if isinstance(m, Release)] == [B, B]


def test_retiring_leader_without_followers_keeps_leading() -> None:
    group = leading(config=Config(1, THREE.members[:1], 1))
    hear(group, B, Offer(9, 0))
    group.request(Retire())
    assert Emit(Retired(NO_NODE), after=0) in group.drain()
    assert group.leader.term is not None
    assert group.leader.term.acting


def test_retiring_follower_may_stop_at_once_and_a_candidate_gives_up() -> None:
    group = started()
    hear(group, A, Beat(ballot(1), 0, 1.0))
    group.request(Retire())
    assert group.drain() == [Emit(Retired(A), after=0)]
    group = started()
    group.leader.stand()
    group.drain()
    group.request(Retire())
    assert group.leader.term is None
    assert Emit(Retired(NO_NODE), after=0) in group.drain()


def test_release_shortens_the_suspicion_time_of_other_followers() -> None:
    group = started()
    hear(group, A, Beat(ballot(1), 0, 1.0))
    effects = hear(group, A, Release(ballot(1), C))
    assert effects == [Later(4 * group.options.resend, Silence())]
