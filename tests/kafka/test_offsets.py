"""Test committed offsets: cursors of subscriptions, fenced by generation (KAF-3)."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.client.session import local
from oncecast.kafka import messages as m
from oncecast.kafka.errors import Code
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.frames import SubscriptionView, TopicView, View
from oncecast.wire.results import Acked, Attached, Sought, Subscribed, Unsubscribed
from oncecast.wire.retention import DEFAULT
from tests.kafka.front_desk import FrontDesk, desk


def commit(offset: int, *, generation: int = -1, member: str = "") -> m.OffsetCommitRequest:
    part = m.CommitPartition(partition_index=0, committed_offset=offset)
    topic = m.CommitTopic(name="t", partitions=(part,))
    return m.OffsetCommitRequest(
        group_id="g", generation_id=generation, member_id=member, topics=(topic,)
    )


def code(front: FrontDesk) -> Code:
    found: Any = front.reply().topics[0].partitions[0]
    return Code(found.error_code)


def attached(front: FrontDesk, cursor: int = 0) -> str:
    """Answer the commands of the first commit. Return the incarnation of the attach."""
    front.answer(Subscribed(cursor, 1, already=True))
    (attach,) = front.commands
    assert isinstance(attach, do.Attach)
    assert (attach.topic, attach.subscription) == ("t", "g")
    front.answer(Attached(4, cursor, 0, 99, 0, 1))
    return attach.incarnation


def view(**cursors: int) -> View:
    subscriptions = tuple(
        SubscriptionView(name, cursor, 0, 1, False) for name, cursor in cursors.items()
    )
    return View(0, (TopicView("t", 1, 0, 99, 0, DEFAULT, subscriptions, 0),), False, "n", "0")


def test_first_commit_creates_the_subscription_and_fences_earlier_generations() -> None:
    """KAF-3: committed offsets are part of the replicated state."""
    front = desk()
    front.send(commit(7))
    assert front.commands == [do.Subscribe("t", "g", do.FromOffset(7), 0)]
    attached(front)
    assert front.commands == [do.Ack("t", "g", 4, 7)]
    front.answer(Acked(7))
    assert code(front) == Code.NONE


def test_later_commit_is_an_ack_or_a_seek_to_a_lower_offset() -> None:
    front = desk()
    front.send(commit(7))
    attached(front)
    front.answer(Acked(7))
    front.replies.clear()
    front.send(commit(9))
    assert front.commands == [do.Ack("t", "g", 4, 9)]
    front.answer(Acked(9))
    assert code(front) == Code.NONE
    front.send(commit(2))
    (seek,) = front.commands
    assert (seek.start, seek.epoch) == (do.FromOffset(2), 4)
    front.answer(Sought(5, 2, already=False))
    assert code(front) == Code.NONE
    front.send(commit(3))
    assert front.commands == [do.Ack("t", "g", 5, 3)]


def test_member_joins_again_after_another_front_end_fences_its_commit() -> None:
    """KAF-3: two coordinators for one group do no harm."""
    front = desk()
    front.send(commit(7))
    first = attached(front)
    front.answer(errors.Fenced(8))
    assert code(front) == Code.ILLEGAL_GENERATION
    front.send(commit(7))
    assert attached(front) == first


def test_commit_from_a_non_member_is_refused() -> None:
    front = desk()
    front.send(commit(7, generation=3, member="x"))
    assert not front.asked
    assert code(front) == Code.UNKNOWN_MEMBER_ID


def test_invalid_commits_are_refused() -> None:
    front = desk()
    front.send(commit(-5))
    assert code(front) == Code.INVALID_REQUEST
    front.send(commit(7))
    front.answer(errors.NoSuchTopic("t"))
    assert code(front) == Code.UNKNOWN_TOPIC_OR_PARTITION
    front.send(commit(700))
    attached(front)
    front.answer(errors.OutOfRange(99))
    assert code(front) == Code.OFFSET_OUT_OF_RANGE


def test_each_generation_attaches_again() -> None:
    """KAF-3: this fences commits of the earlier generation."""
    front = desk()
    codes: list[Code] = []
    for holder in ("kafka/front/1", "kafka/front/2"):
        front.front.offsets.commit("g", holder, "t", 7, codes.append)
        front.wait(0.0)
        assert [type(each) for each in front.commands] == [do.Subscribe]
        attached(front)
        front.answer(Acked(7))
    assert codes == [Code.NONE, Code.NONE]


def test_committed_offset_is_the_subscription_cursor() -> None:
    front = desk()
    front.front.partitions.learn("t", 0)
    topics = (m.OffsetFetchTopic(name="t", partition_indexes=(0, 1)),)
    front.send(m.OffsetFetchRequest(group_id="g", topics=topics))
    front.answer(view(other=3, g=7), front.asked[0])
    first, second = front.reply().topics[0].partitions
    assert (first.committed_offset, first.error_code) == (7, 0)
    assert second.committed_offset == -1
    front.send(m.OffsetFetchRequest(group_id="new", topics=topics))
    front.answer(view(other=3, g=7), front.asked[-1])
    assert front.reply().topics[0].partitions[0].committed_offset == -1


def test_all_committed_offsets_for_a_group_are_listed() -> None:
    front = desk()
    front.send(m.OffsetFetchRequest(group_id="g", topics=None))
    front.answer(view(other=3, g=7))
    (topic,) = front.reply().topics
    assert (topic.name, topic.partitions[0].committed_offset) == ("t", 7)


def test_group_without_members_is_empty_if_it_has_offsets_and_dead_otherwise() -> None:
    """KAF-3: admin tools show the offsets of an empty group."""
    front = desk()
    front.send(m.DescribeGroupsRequest(groups=("g", "new")))
    front.answer(view(g=7))
    found = [(each.group_state, each.error_code) for each in front.reply().groups]
    assert found == [("Empty", 0), ("Dead", 0)]
    front.send(m.DescribeGroupsRequest(groups=("g",)))
    front.answer(local.NoAnswer(1.0))
    assert front.reply().groups[0].error_code == Code.COORDINATOR_NOT_AVAILABLE


def test_groups_with_offsets_are_listed_and_deleted() -> None:
    """KAF-3"""
    front = desk()
    front.send(m.ListGroupsRequest())
    front.answer(view(g=7))
    assert [each.group_id for each in front.reply().groups] == ["g"]
    front.send(m.DeleteGroupsRequest(groups_names=("g", "unknown")))
    front.answer(view(g=7))
    assert front.commands == [do.Unsubscribe("t", "g", 0)]
    front.answer(Unsubscribed(already=False))
    results = front.reply().results
    assert [each.error_code for each in results] == [Code.NONE, Code.GROUP_ID_NOT_FOUND]


def test_commit_recreates_a_deleted_subscription() -> None:
    front = desk()
    front.send(commit(7))
    attached(front)
    front.answer(Acked(7))
    front.replies.clear()
    front.send(commit(9))
    front.answer(errors.NotSubscribed("t", "g"))
    attached(front)
    front.answer(Acked(9))
    assert code(front) == Code.NONE
    front.send(commit(10))
    front.answer(errors.NotSubscribed("t", "g"))
    attached(front)
    front.answer(errors.NotSubscribed("t", "g"))
    assert code(front) == Code.GROUP_ID_NOT_FOUND  # the front end does not retry forever


def test_lower_offset_can_be_committed_right_after_a_higher_one() -> None:
    front = desk()
    front.send(commit(1))
    attached(front)
    front.answer(Acked(1))
    front.send(commit(9))
    front.send(commit(5))
    ack, seek = front.commands
    assert ack == do.Ack("t", "g", 4, 9)
    assert seek.start == do.FromOffset(5)


def test_unanswered_lookup_is_not_mistaken_for_missing_offsets() -> None:
    """Otherwise a consumer would stop, or start again from the beginning."""
    silence = local.NoAnswer(15.0)
    front = desk()
    topics = (m.OffsetFetchTopic(name="t", partition_indexes=(0,)),)
    for wanted in (topics, None):
        front.send(m.OffsetFetchRequest(group_id="g", topics=wanted))
        front.answer(silence)
        assert front.reply().error_code == Code.COORDINATOR_LOAD_IN_PROGRESS
    front.send(m.ListGroupsRequest())
    front.answer(silence)
    assert front.reply().error_code == Code.COORDINATOR_NOT_AVAILABLE
    front.send(m.DeleteGroupsRequest(groups_names=("g",)))
    front.answer(silence)
    assert front.reply().results[0].error_code == Code.COORDINATOR_NOT_AVAILABLE
    front.send(m.MetadataRequest(topics=None))
    front.answer(silence)
    assert front.reply().brokers == ()


def test_group_deletion_waits_for_its_outcome() -> None:
    front = desk()
    front.send(m.DeleteGroupsRequest(groups_names=("g",)))
    front.answer(view(g=7))
    assert not front.replies
    front.answer(errors.Denied())
    assert front.reply().results[0].error_code == Code.TOPIC_AUTHORIZATION_FAILED


def test_front_end_remembers_a_bounded_number_of_positions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oncecast.kafka.offsets.HELD_MAX", 1)
    front = desk()
    for generation in ("g", "h"):
        request = commit(7)
        request.group_id = generation
        front.send(request)
        front.answer(Subscribed(0, 1, already=True))
        front.answer(Attached(4, 0, 0, 99, 0, 1))
        front.answer(Acked(7))
    assert list(front.front.offsets._held) == [("h", "t")]


def test_commit_after_a_group_deletion_subscribes_again() -> None:
    front = desk()
    front.send(commit(7))
    attached(front)
    front.answer(Acked(7))
    front.send(m.DeleteGroupsRequest(groups_names=("g",)))
    front.answer(view(g=7))
    front.answer(Unsubscribed(already=False))
    front.send(commit(9))
    assert front.commands == [do.Subscribe("t", "g", do.FromOffset(9), 0)]


def test_group_has_no_committed_offset_in_a_missing_topic() -> None:
    front = desk()
    topics = (m.OffsetFetchTopic(name="t", partition_indexes=(0,)),)
    front.send(m.OffsetFetchRequest(group_id="g", topics=topics))
    front.answer(errors.NoSuchTopic("t"))
    found = front.reply().topics[0].partitions[0]
    assert (found.committed_offset, found.error_code) == (-1, 0)


def test_late_answer_to_a_lower_commit_does_not_hide_a_higher_one() -> None:
    front = desk()
    front.send(commit(1))
    attached(front)
    front.answer(Acked(1))
    front.send(commit(5))
    front.send(commit(9))
    front.answer(Acked(5))
    front.send(commit(7))
    assert isinstance(front.commands[-1], do.Seek)
