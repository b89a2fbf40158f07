"""Test that partition 3 of a Kafka topic `t` is the topic `t#3` (PART-1, KAF-1)."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.client.session import local
from oncecast.kafka import messages as m
from oncecast.kafka.errors import Code
from oncecast.kafka.policies import hard_limit
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.frames import SubscriptionView, TopicView, View
from oncecast.wire.kafka_records import encode
from oncecast.wire.partitions import SetPartitions
from oncecast.wire.results import PartitionsSet, Subscribed, TopicCreated, TopicDeleted
from oncecast.wire.retention import Policy
from tests.kafka.front_desk import FrontDesk, desk, no_topics
from tests.kafka.test_producing import ONE, stamped

WEEK = hard_limit(7 * 24 * 3600 * 1_000_000, 0)
MADE = TopicCreated(1, already=False)


def topic(count: int = 3, *, of: str = "", name: str = "t", groups: tuple[str, ...] = ()) -> View:
    subscriptions = tuple(SubscriptionView(each, 9, 0, 1, attached=False) for each in groups)
    view = TopicView(name, 1, 0, 0, 0, WEEK, subscriptions, 0, 0, count, of, groups_epoch=5)
    return View(0, (view,), False, "node", "0")


def known(count: int = 3) -> FrontDesk:
    front = desk()
    front.front.partitions.learn("t", count)
    return front


def produce(index: int) -> m.ProduceRequest:
    part = m.ProducePartition(index=index, records=encode(ONE))
    found = m.ProduceTopic(name="t", partitions=(part,))
    return m.ProduceRequest(acks=-1, timeout_ms=9000, topics=(found,))


def fetch(index: int) -> m.FetchRequest:
    part = m.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=9)
    found = m.FetchTopic(topic="t", partitions=(part,))
    return m.FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=9, topics=(found,))


def test_metadata_lists_the_partitions_of_a_topic() -> None:
    """PART-1"""
    front = desk()
    front.send(m.MetadataRequest(topics=(m.MetadataTopic(name="t"),)))
    front.answer(topic(3))
    found = front.reply().topics[0].partitions
    assert [each.partition_index for each in found] == [0, 1, 2]
    front.send(produce(2))
    assert front.asked[0].topic == "t#2"


def test_list_of_topics_hides_partitions() -> None:
    front = desk()
    front.send(m.MetadataRequest(topics=None))
    views = (*topic(1).topics, *topic(0, of="t", name="t#0").topics, *topic(0, name="u").topics)
    front.answer(View(0, views, False, "node", "0"))
    assert [each.name for each in front.reply().topics] == ["t", "u"]


@pytest.mark.parametrize("index", [0, 2])
def test_partition_is_put_and_fetched_under_its_own_name(index: int) -> None:
    """PART-1"""
    front = known()
    front.send(produce(index))
    front.send(fetch(index))
    put, scan = front.asked
    assert isinstance(put, local.Produce)
    assert (put.topic, scan.scan.topic) == (f"t#{index}", f"t#{index}")
    front.answer(local.Stored(0, 7, True), put)
    found = front.reply().topics[0].partitions[0]
    assert (found.index, found.base_offset) == (index, 7)


def test_missing_partition_is_looked_up_for_the_next_try() -> None:
    """PART-1: another client may have added partitions."""
    front = known(2)
    front.send(produce(2))
    assert front.reply().topics[0].partitions[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    front.answer(topic(3))
    front.send(produce(2))
    assert front.asked[0].topic == "t#2"


def test_unknown_partitions_are_looked_up_while_the_client_tries_again() -> None:
    front = desk()
    front.send(produce(1))
    assert front.reply().topics[0].partitions[0].error_code == Code.NOT_LEADER_OR_FOLLOWER
    front.send(produce(1))
    assert front.reply().topics[0].partitions[0].error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert len(front.asked) == 1
    front.answer(topic(3))
    front.send(produce(1))
    assert front.asked[0].topic == "t#1"


def test_refusal_tells_that_a_topic_has_partitions() -> None:
    """PART-1: the client repeats the request, which then reaches partition 0."""
    front = desk()
    front.send(fetch(0))
    front.answer(errors.Partitioned("t", 3))
    code = front.reply().responses[0].partitions[0].error_code
    assert code == Code.NOT_LEADER_OR_FOLLOWER
    front.send(fetch(0))
    assert front.asked[0].scan.topic == "t#0"


def test_deleted_partition_is_not_created_by_a_put() -> None:
    front = known()
    part = m.ProducePartition(index=1, records=stamped(ONE, 0))
    found = m.ProduceTopic(name="t", partitions=(part,))
    front.send(m.ProduceRequest(acks=-1, timeout_ms=9000, topics=(found,)))
    (opened,) = front.commands
    assert (opened.topic, opened.create) == ("t#1", False)


def test_offsets_are_committed_for_each_partition() -> None:
    """KAF-3"""
    front = known()
    parts = tuple(m.CommitPartition(partition_index=i, committed_offset=7) for i in (0, 2, 3))
    request = m.OffsetCommitRequest(
        group_id="g",
        generation_id=-1,
        member_id="",
        topics=(m.CommitTopic(name="t", partitions=parts),),
    )
    front.send(request)
    wanted = [each.topic for each in front.commands if isinstance(each, do.Subscribe)]
    assert wanted == ["t#0", "t#2"]


def test_committed_offsets_are_found_by_partition() -> None:
    """KAF-3"""
    front = known()
    front.send(m.OffsetFetchRequest(group_id="g", topics=None))
    views = (
        *topic(3, groups=("g",)).topics,
        *topic(0, of="t", name="t#1", groups=("g", "h")).topics,
        *topic(0, of="t", name="t#2", groups=("g",)).topics,
        *topic(0, name="u", groups=("g",)).topics,
    )
    front.answer(View(0, views, False, "node", "0"))
    found = {
        each.name: [p.partition_index for p in each.partitions] for each in front.reply().topics
    }
    assert found == {"t": [1, 2], "u": [0]}


# -- create, grow and delete --


def creation(count: int) -> m.CreateTopicsRequest:
    made = m.CreatableTopic(name="t", num_partitions=count, replication_factor=3)
    return m.CreateTopicsRequest(topics=(made,), timeout_ms=1)


def test_partitions_are_created_before_their_descriptor() -> None:
    """PART-1: a topic is visible only when it is complete."""
    front = desk()
    front.send(creation(2))
    front.answer(no_topics())
    assert front.commands == [
        do.CreateTopic("t#0", 0, WEEK, partition_of="t"),
        do.CreateTopic("t#1", 0, WEEK, partition_of="t"),
    ]
    front.answer(MADE)
    front.answer(MADE)
    assert front.commands == [do.CreateTopic("t", 0, WEEK, partitions=2)]
    front.answer(MADE)
    assert front.reply().topics[0].error_code == 0


def test_existing_topic_gets_no_partitions() -> None:
    front = desk()
    front.send(creation(2))
    front.answer(topic(0))
    assert front.reply().topics[0].error_code == Code.TOPIC_ALREADY_EXISTS


def test_refused_partition_ends_the_creation() -> None:
    front = desk()
    front.send(creation(2))
    front.answer(no_topics())
    front.answer(MADE)
    front.answer(errors.Denied())
    assert front.reply().topics[0].error_code == Code.TOPIC_AUTHORIZATION_FAILED
    assert front.asked == []


def growth(count: int) -> m.CreatePartitionsRequest:
    more = m.MorePartitions(name="t", count=count)
    return m.CreatePartitionsRequest(topics=(more,), timeout_ms=1)


def test_native_groups_are_subscribed_to_new_partitions() -> None:
    """PART-1, PART-2: a group that is added meanwhile makes the front end try again."""
    front = desk()
    front.send(growth(3))
    for outcome in (errors.Fenced(6), PartitionsSet(3, already=False)):
        front.answer(topic(2, groups=("g",)))
        assert front.commands == [do.CreateTopic("t#2", 0, WEEK, partition_of="t")]
        front.answer(MADE)
        assert front.commands == [do.Subscribe("t#2", "g", do.FromEarliest(), 0)]
        front.answer(Subscribed(0, 1, already=False))
        assert front.commands == [SetPartitions("t", 0, 3, 5)]
        front.answer(outcome)
    assert front.reply().results[0].error_code == 0
    front.send(produce(2))
    assert front.asked[0].topic == "t#2"


@pytest.mark.parametrize(
    ("found", "count", "code"),
    [
        (topic(0), 3, Code.INVALID_PARTITIONS),
        (topic(3), 3, Code.INVALID_PARTITIONS),
        (topic(3), 1001, Code.INVALID_PARTITIONS),
        (no_topics(), 3, Code.UNKNOWN_TOPIC_OR_PARTITION),
        (errors.Denied(), 3, Code.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_topic_that_cannot_grow_is_left_alone(found: Any, count: int, code: Code) -> None:
    front = desk()
    front.send(growth(count))
    front.answer(found)
    assert front.reply().results[0].error_code == code
    assert front.asked == []


def test_partitioned_topic_is_closed_before_it_is_deleted() -> None:
    """PART-1"""
    front = known(2)
    front.send(m.DeleteTopicsRequest(topic_names=("t",), timeout_ms=1))
    front.answer(errors.Partitioned("t", 2))
    assert front.commands == [SetPartitions("t", 0, 0)]
    front.answer(PartitionsSet(0, already=False))
    parts = [do.DeleteTopic(f"t#{index}", 0, partition_of="t") for index in range(2)]
    assert front.commands == parts
    for _ in parts:
        front.answer(TopicDeleted(already=False))
    assert front.commands == [do.DeleteTopic("t", 0, partition_of="t")]
    front.answer(TopicDeleted(already=False))
    assert front.reply().responses[0].error_code == 0


def test_policy_of_a_topic_is_the_policy_of_its_partitions() -> None:
    front = known(2)
    config = m.TopicConfig(name="retention.bytes", value="5")
    change = m.AlterConfigsResource(resource_type=2, resource_name="t", configs=(config,))
    front.send(m.AlterConfigsRequest(resources=(change,), validate_only=False))
    policy = Policy(age_us=WEEK.age_us, bytes_max=5, drop_unread=True)
    assert front.commands == [do.SetPolicy("t", 0, policy)]
    front.answer(MADE)
    front.answer(topic(2))
    assert front.commands == [do.SetPolicy("t#0", 0, policy), do.SetPolicy("t#1", 0, policy)]
