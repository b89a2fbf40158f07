"""Test consumer groups: joins, rebalances, expiry and static members (KAF-3)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from oncecast.kafka import messages as m
from oncecast.kafka.errors import Code
from oncecast.kafka.membership import Group
from oncecast.wire.results import Subscribed
from tests.kafka.front_desk import FrontDesk, desk

SESSION = 10.0


class Members:
    """Kafka clients that belong to one group, each with its own connection."""

    def __init__(self) -> None:
        self.front = FrontDesk()
        self.connections = 0

    def connect(self) -> int:
        self.connections += 1
        self.front.connect(self.connections)
        return self.connections

    def send(self, connection: int, request: Any, version: int | None = None) -> Any:
        """Send a request, and return its response, or None if it has none yet."""
        number = self.front.send(request, connection, version)
        return self.response(number)

    def response(self, number: int | None = None) -> Any:
        number = self.front.sent if number is None else number
        for each in self.front.replies:
            if each[1] == number:
                self.front.replies.remove(each)
                return each[2]
        return None

    def join(self, connection: int, id: str = "", instance: str | None = None, *names: str) -> Any:
        protocols = tuple(
            m.JoinProtocol(name=name, metadata=name.encode()) for name in names or ("range",)
        )
        request = m.JoinGroupRequest(
            group_id="g",
            session_timeout_ms=int(SESSION * 1000),
            rebalance_timeout_ms=30_000,
            member_id=id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=protocols,
        )
        return self.send(connection, request)

    def member(self) -> tuple[int, str]:
        """Return the connection and the id of a new member that waits for the rebalance."""
        connection = self.connect()
        asked = self.join(connection)
        assert asked.error_code == Code.MEMBER_ID_REQUIRED
        assert self.join(connection, asked.member_id) is None
        return connection, asked.member_id

    def sync(self, connection: int, id: str, generation: int, **given: bytes) -> Any:
        assignments = tuple(
            m.SyncAssignment(member_id=name, assignment=data) for name, data in given.items()
        )
        return self.send(
            connection,
            m.SyncGroupRequest(
                group_id="g", generation_id=generation, member_id=id, assignments=assignments
            ),
        )

    def beat(self, connection: int, id: str, generation: int) -> Code:
        request = m.HeartbeatRequest(group_id="g", generation_id=generation, member_id=id)
        return Code(self.send(connection, request).error_code)


def settled(count: int) -> tuple[Members, list[tuple[int, str]], int]:
    """Return a stable group of `count` members, and its generation. The first one leads."""
    group = Members()
    members = [group.member() for _ in range(count)]
    group.front.wait(0.3)
    joined = [each[2] for each in group.front.replies]
    group.front.replies.clear()
    leader = joined[0].leader
    members.sort(key=lambda each: each[1] != leader)
    generation = joined[0].generation_id
    given = {id: id.encode() for _, id in members}
    for connection, id in reversed(members):
        group.sync(connection, id, generation, **(given if id == leader else {}))
    group.front.replies.clear()
    return group, members, generation


def test_members_of_a_new_group_join_one_generation() -> None:
    """KAF-3: the leader gets all members, and each other member gets none."""
    group = Members()
    (_, first), (_, second) = group.member(), group.member()
    assert not group.front.replies
    group.front.wait(0.3)
    replies = {each[2].member_id: each[2] for each in group.front.replies}
    assert set(replies) == {first, second}
    assert {each.generation_id for each in replies.values()} == {replies[first].generation_id}
    leader = replies[first].leader
    assert [each.member_id for each in replies[leader].members] == [first, second]
    (other,) = {first, second} - {leader}
    assert replies[other].members == ()
    assert replies[other].protocol_name == "range"


def test_leader_assignment_reaches_every_member() -> None:
    group = Members()
    (one, first), (two, second) = group.member(), group.member()
    group.front.wait(0.3)
    generation = group.front.replies[0][2].generation_id
    leader = group.front.replies[0][2].leader
    group.front.replies.clear()
    follower = second if leader == first else first
    to = {first: one, second: two}
    assert group.sync(to[follower], follower, generation) is None
    found = group.sync(to[leader], leader, generation, **{follower: b"f", leader: b"l"})
    assert found.assignment == b"l"
    assert [each[2].assignment for each in group.front.replies] == [b"f"]
    group.front.replies.clear()
    assert group.sync(to[follower], follower, generation).assignment == b"f"  # a repeated request


def test_new_member_makes_earlier_members_join_again() -> None:
    group, [(one, first), (two, second)], generation = settled(2)
    assert group.beat(one, first, generation) == Code.NONE
    group.member()
    assert group.beat(one, first, generation) == Code.REBALANCE_IN_PROGRESS
    assert group.join(one, first) is None
    joined = [group.join(two, second), *(each[2] for each in group.front.replies)]
    assert {each.generation_id for each in joined} == {generation + 1}
    assert len(joined) == 3
    assert group.beat(one, first, generation) == Code.ILLEGAL_GENERATION
    assert group.sync(two, second, generation).error_code == Code.ILLEGAL_GENERATION


def test_member_that_does_not_join_again_is_removed_after_the_rebalance_timeout() -> None:
    group, [(one, first), (two, second)], generation = settled(2)
    group.member()
    group.join(one, first)
    for _ in range(4):  # this member sends heartbeats, but never joins
        group.front.wait(9.0)
        group.beat(two, second, generation)
    joined = [each[2] for each in group.front.replies if isinstance(each[2], m.JoinGroupResponse)]
    assert {len(each.members) for each in joined} == {0, 2}
    assert group.beat(two, second, generation) == Code.UNKNOWN_MEMBER_ID


def test_silent_member_expires_and_its_group_rebalances() -> None:
    group, [(one, first), (two, second)], generation = settled(2)
    for _ in range(2):
        group.front.wait(SESSION / 2)
        group.beat(one, first, generation)
    assert group.beat(one, first, generation) == Code.REBALANCE_IN_PROGRESS
    assert group.join(one, first).generation_id == generation + 1
    assert group.beat(two, second, generation) == Code.UNKNOWN_MEMBER_ID


def test_leaving_member_is_removed_at_once() -> None:
    group, [(one, first), (two, second)], generation = settled(2)
    leave = m.LeaveGroupRequest(group_id="g", members=(m.LeavingMember(member_id=second),))
    assert group.send(two, leave).members[0].error_code == 0
    assert group.beat(one, first, generation) == Code.REBALANCE_IN_PROGRESS
    again = group.send(two, leave)
    assert again.members[0].error_code == Code.UNKNOWN_MEMBER_ID
    old = m.LeaveGroupRequest(group_id="g", member_id=first)
    assert group.send(one, old, version=1).error_code == 0
    assert group.send(one, old, version=1).error_code == Code.UNKNOWN_MEMBER_ID


def test_static_member_that_restarts_replaces_itself() -> None:
    """KAF-3: the earlier process is fenced."""
    group = Members()
    one = group.connect()
    assert group.join(one, "", "instance") is None
    group.front.wait(0.3)
    first = group.front.replies.pop()[2]
    two = group.connect()
    second = group.join(two, "", "instance")
    assert second.member_id != first.member_id
    assert second.generation_id == first.generation_id + 1
    beat = m.HeartbeatRequest(
        group_id="g",
        generation_id=first.generation_id,
        member_id=first.member_id,
        group_instance_id="instance",
    )
    assert group.send(one, beat).error_code == Code.FENCED_INSTANCE_ID


def test_group_chooses_a_protocol_that_all_members_know() -> None:
    group = Members()
    for names in (("sticky", "range"), ("range",)):
        connection = group.connect()
        asked = group.join(connection, "", None, *names)
        group.join(connection, asked.member_id, None, *names)
    connection = group.connect()
    refused = group.join(connection, "", None, "other")
    assert refused.error_code == Code.INCONSISTENT_GROUP_PROTOCOL
    group.front.wait(0.3)
    assert {each[2].protocol_name for each in group.front.replies} == {"range"}


def test_invalid_joins_are_refused() -> None:
    front = desk()

    def join(**fields: Any) -> Code:
        base: dict[str, Any] = {
            "group_id": "g",
            "session_timeout_ms": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": (m.JoinProtocol(name="range", metadata=b""),),
        }
        front.send(m.JoinGroupRequest(**(base | fields)))
        return Code(front.reply().error_code)

    assert join(group_id="") == Code.INVALID_GROUP_ID
    assert join(session_timeout_ms=1) == Code.INVALID_SESSION_TIMEOUT
    assert join(protocols=()) == Code.INCONSISTENT_GROUP_PROTOCOL
    assert join(member_id="stranger") == Code.UNKNOWN_MEMBER_ID


def test_group_is_described_while_it_has_members() -> None:
    """KAF-3"""
    group, members, _ = settled(2)
    request = m.DescribeGroupsRequest(groups=("g",))
    (known,) = group.send(members[0][0], request).groups
    assert (known.group_state, known.protocol_type, known.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    assert {each.member_id for each in known.members} == {id for _, id in members}
    assert {each.member_assignment for each in known.members} == {id.encode() for _, id in members}


def test_group_without_members_is_dropped() -> None:
    group, [(one, first)], _ = settled(1)
    leave = m.LeaveGroupRequest(group_id="g", members=(m.LeavingMember(member_id=first),))
    group.send(one, leave)
    assert group.front.front.groups._groups == {}


def test_repeated_join_or_sync_also_answers_the_earlier_request() -> None:
    """A reconnected client repeats its request, and both copies are answered."""
    group = Members()
    one, first = group.member()
    earlier = group.front.sent
    assert group.join(one, first) is None
    group.front.wait(0.3)
    assert group.response(earlier).error_code == Code.REBALANCE_IN_PROGRESS
    joined = group.response()
    assert joined.error_code == 0
    two, second = group.member()
    group.join(one, first)
    generation = joined.generation_id + 1
    group.front.replies.clear()
    follower, id = (two, second) if joined.leader == first else (one, first)
    assert group.sync(follower, id, generation) is None
    earlier = group.front.sent
    again = group.connect()
    assert group.sync(again, id, generation) is None
    assert group.response(earlier).error_code == Code.REBALANCE_IN_PROGRESS


def test_follower_stays_a_member_while_its_leader_is_slow() -> None:
    """A follower's session timeout restarts when it gets its assignment."""
    group = Members()
    (one, first), (two, second) = group.member(), group.member()
    group.front.wait(0.3)
    joined = group.front.replies[0][2]
    group.front.replies.clear()
    assert joined.leader == first
    group.sync(two, second, joined.generation_id)
    for _ in range(3):
        group.front.wait(SESSION * 0.5)
        assert group.beat(one, first, joined.generation_id) == Code.NONE
    group.sync(one, first, joined.generation_id)
    group.front.wait(SESSION * 0.5)
    assert group.beat(one, first, joined.generation_id) == Code.NONE
    assert group.beat(two, second, joined.generation_id) == Code.NONE


def test_leader_that_never_syncs_is_removed_after_the_rebalance_timeout() -> None:
    """Otherwise its followers would wait forever."""
    group = Members()
    (one, first), (two, second) = group.member(), group.member()
    group.front.wait(0.3)
    generation = group.front.replies[0][2].generation_id
    group.front.replies.clear()
    group.sync(two, second, generation)
    waiting = group.front.sent
    for _ in range(4):
        group.front.wait(9.0)
        group.beat(one, first, generation)
    assert group.response(waiting).error_code == Code.REBALANCE_IN_PROGRESS
    assert group.beat(one, first, generation) == Code.UNKNOWN_MEMBER_ID
    assert group.join(two, second).leader == second


def test_number_of_reserved_member_ids_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncecast.kafka.membership.MEMBERS_MAX", 3)
    group = Members()
    connection = group.connect()
    ids = [group.join(connection).member_id for _ in range(5)]
    assert list(group.front.front.groups._groups["g"].promised) == ids[2:]
    assert group.join(connection, ids[0]).error_code == Code.UNKNOWN_MEMBER_ID
    assert group.join(connection, ids[4]) is None


def test_replaced_static_member_that_joins_again_is_fenced() -> None:
    """Otherwise two processes with one instance id would replace each other forever."""
    group = Members()
    one, two = group.connect(), group.connect()
    group.join(one, "", "instance")
    group.front.wait(0.3)
    first = group.front.replies.pop()[2].member_id
    assert group.join(two, "", "instance").error_code == 0
    assert group.join(one, first, "instance").error_code == Code.FENCED_INSTANCE_ID


def test_total_bytes_for_all_members_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member remains for its session timeout after its client has disconnected."""
    group, [(one, first)], _ = settled(1)
    groups = group.front.front.groups
    assert groups._bytes == len(first) + len("range") * 2
    monkeypatch.setattr("oncecast.kafka.groups.BYTES_MAX", groups._bytes)
    assert group.join(group.connect()).error_code == Code.GROUP_MAX_SIZE_REACHED
    assert group.join(one, first).error_code == 0  # a member may join again
    monkeypatch.setattr("oncecast.kafka.groups.BYTES_MAX", 1)
    assert group.join(one, first).error_code == Code.GROUP_MAX_SIZE_REACHED
    leave = m.LeaveGroupRequest(group_id="g", members=(m.LeavingMember(member_id=first),))
    group.send(one, leave)
    assert (groups._bytes, groups._sizes) == (0, {})


def test_member_with_another_protocol_type_is_refused() -> None:
    group, _, _ = settled(1)
    request = m.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        member_id="",
        protocol_type="connect",
        protocols=(m.JoinProtocol(name="range", metadata=b""),),
    )
    found = group.send(group.connect(), request)
    assert found.error_code == Code.INCONSISTENT_GROUP_PROTOCOL


def test_session_timeout_restarts_after_a_long_rebalance() -> None:
    group, [(one, first), (two, second)], generation = settled(2)
    assert group.join(one, first) is None
    for _ in range(3):
        group.front.wait(SESSION / 2)
        assert group.beat(two, second, generation) == Code.REBALANCE_IN_PROGRESS
    assert group.join(two, second).generation_id == generation + 1
    group.front.wait(SESSION / 2)
    assert group.beat(one, first, generation + 1) == Code.NONE


def test_last_member_leaves_during_a_rebalance() -> None:
    group = Members()
    one, first = group.member()
    waiting = group.front.sent
    leave = m.LeaveGroupRequest(group_id="g", members=(m.LeavingMember(member_id=first),))
    group.front.connect(9)
    group.send(9, leave)
    assert group.response(waiting).error_code == Code.UNKNOWN_MEMBER_ID
    assert group.front.front.groups._groups == {}
    assert group.beat(one, first, 0) == Code.UNKNOWN_MEMBER_ID


def test_sync_during_a_rebalance_makes_the_member_join_again() -> None:
    group, [(one, first)], generation = settled(1)
    group.member()
    assert group.sync(one, first, generation).error_code == Code.REBALANCE_IN_PROGRESS


def test_new_front_end_starts_another_generation() -> None:
    """KAF-3: a member of an earlier front end must join again before it commits."""
    assert Group("g", Random(1)).generation != Group("g", Random(2)).generation


def test_member_commit_is_fenced_by_front_end_and_generation() -> None:
    """KAF-3"""
    group, [(one, first)], generation = settled(1)
    partition = m.CommitPartition(partition_index=0, committed_offset=7)
    topics = (m.CommitTopic(name="t", partitions=(partition,)),)
    commit = m.OffsetCommitRequest(
        group_id="g", generation_id=generation, member_id=first, topics=topics
    )
    group.send(one, commit)
    group.front.answer(Subscribed(0, 1, already=True))
    (attach,) = group.front.commands
    assert attach.incarnation == f"kafka/{group.front.front.groups._id}/{generation}"
    simple = m.OffsetCommitRequest(group_id="g", generation_id=-1, member_id="", topics=topics)
    found = group.send(group.connect(), simple)
    assert found.topics[0].partitions[0].error_code == Code.UNKNOWN_MEMBER_ID
