"""Test metadata, topics and their configuration (KAF-3)."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.kafka import messages as m
from oncecast.kafka.errors import Code
from oncecast.kafka.policies import changed, configuration, hard_limit
from oncecast.kafka.topics import BROKER, TOPIC
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.frames import TopicView, View
from oncecast.wire.results import PolicySet, TopicCreated, TopicDeleted
from oncecast.wire.retention import Policy
from tests.kafka.front_desk import desk, no_topics

WEEK_US = 7 * 24 * 3600 * 1_000_000
WEEK = hard_limit(WEEK_US, 0)


def view(*names: str, more: bool = False, policy: Policy = WEEK) -> View:
    topics = tuple(TopicView(name, 1, 0, 0, 0, policy, (), 0) for name in names)
    return View(0, topics, more, "node", "0")


def metadata(*names: str, create: bool = True) -> m.MetadataRequest:
    topics = tuple(m.MetadataTopic(name=name) for name in names)
    return m.MetadataRequest(topics=topics, allow_auto_topic_creation=create)


def test_metadata_names_this_front_end_as_the_leader() -> None:
    """KAF-1"""
    front = desk()
    front.send(metadata("t"))
    front.answer(view("t"))
    reply = front.reply()
    assert reply.brokers == (m.MetadataBroker(node_id=0, host="127.0.0.1", port=9092),)
    (topic,) = reply.topics
    (partition,) = topic.partitions
    assert (topic.error_code, partition.partition_index, partition.leader_id) == (0, 0, 0)
    assert (partition.replica_nodes, partition.isr_nodes) == ((0,), (0,))


def test_all_topics_are_listed_page_by_page() -> None:
    front = desk()
    front.send(m.MetadataRequest(topics=None))
    front.answer(view("a", "b", more=True))
    assert front.asked[0].after == "b"
    front.answer(view("c"))
    assert [topic.name for topic in front.reply().topics] == ["a", "b", "c"]


def test_missing_topic_is_created_and_keeps_messages_for_a_week() -> None:
    """KAF-4: a topic created by a Kafka client keeps its messages even after they are read."""
    front = desk()
    front.send(metadata("t"))
    front.answer(no_topics())
    assert front.commands == [do.CreateTopic("t", 0, WEEK)]
    assert Policy(age_us=WEEK_US, drop_unread=True) == WEEK
    front.answer(TopicCreated(1, already=False))
    assert front.reply().topics[0].error_code == 0


def test_missing_topic_is_not_created_if_the_client_forbids_it() -> None:
    front = desk()
    front.send(metadata("t", create=False))
    front.answer(no_topics())
    assert not front.asked
    assert front.reply().topics[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def creation(partitions: int = 1, **configs: str) -> m.CreateTopicsRequest:
    values = tuple(m.TopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items())
    topic = m.CreatableTopic(
        name="t", num_partitions=partitions, replication_factor=3, configs=values
    )
    return m.CreateTopicsRequest(topics=(topic,), timeout_ms=1000)


def test_topic_is_created_with_its_configuration() -> None:
    front = desk()
    front.send(creation(retention_ms="60000", retention_bytes="1000"))
    policy = Policy(age_us=60_000_000, bytes_max=1000, drop_unread=True)
    assert front.commands == [do.CreateTopic("t", 0, policy)]
    front.answer(TopicCreated(1, already=False))
    assert front.reply().topics == (m.TopicError(name="t"),)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (creation(partitions=1001), Code.INVALID_PARTITIONS),
        (creation(retention_ms="soon"), Code.INVALID_CONFIG),
        (creation(cleanup_policy="compact"), Code.INVALID_CONFIG),
    ],
)
def test_invalid_topic_is_not_created(request_: m.CreateTopicsRequest, code: Code) -> None:
    front = desk()
    front.send(request_)
    assert not front.asked
    (found,) = front.reply().topics
    assert found.error_code == code
    assert found.error_message


def test_existing_topic_is_not_created_again() -> None:
    front = desk()
    front.send(creation())
    front.answer(TopicCreated(1, already=True))
    assert front.reply().topics[0].error_code == Code.TOPIC_ALREADY_EXISTS


def test_topics_are_deleted() -> None:
    front = desk()
    front.send(m.DeleteTopicsRequest(topic_names=("a", "b", "c"), timeout_ms=1))
    assert front.commands == [do.DeleteTopic(name, 0) for name in "abc"]
    front.answer(TopicDeleted(already=False))
    front.answer(TopicDeleted(already=True))
    front.answer(errors.Denied())
    assert [each.error_code for each in front.reply().responses] == [
        Code.NONE,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.TOPIC_AUTHORIZATION_FAILED,
    ]


def resource(kind: int = TOPIC, keys: tuple[str, ...] | None = None) -> Any:
    return m.DescribeConfigsResource(resource_type=kind, resource_name="t", configuration_keys=keys)


def test_topic_configuration_shows_its_retention_policy() -> None:
    """KAF-3"""
    front = desk()
    front.send(m.DescribeConfigsRequest(resources=(resource(), resource(BROKER))))
    front.answer(view("t", policy=Policy(keep_all=True)))
    topic, broker = front.reply().results
    assert {each.name: each.value for each in topic.configs} == {
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "cleanup.policy": "delete",
    }
    assert broker.configs == ()


def test_only_requested_configuration_is_described() -> None:
    front = desk()
    front.send(m.DescribeConfigsRequest(resources=(resource(keys=("retention.ms",)),)))
    front.answer(view("t"))
    (config,) = front.reply().results[0].configs
    assert (config.name, config.value) == ("retention.ms", str(WEEK_US // 1000))


def test_configuration_of_a_missing_topic_is_an_error() -> None:
    front = desk()
    front.send(m.DescribeConfigsRequest(resources=(resource(), resource(99))))
    front.answer(no_topics())
    first, second = front.reply().results
    assert first.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert second.error_code == Code.INVALID_REQUEST


def test_configuration_is_replaced_as_a_whole() -> None:
    front = desk()
    config = m.TopicConfig(name="retention.bytes", value="5")
    change = m.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=(config,))
    front.send(m.AlterConfigsRequest(resources=(change,), validate_only=False))
    assert front.commands == [do.SetPolicy("t", 0, hard_limit(WEEK_US, 5))]
    front.answer(PolicySet(already=False))
    front.answer(view("t"))
    assert front.reply().responses[0].error_code == 0


def incremental(operation: int, value: str | None) -> m.IncrementalAlterConfigsRequest:
    config = m.AlterableConfig(name="retention.ms", config_operation=operation, value=value)
    change = m.IncrementalResource(resource_type=TOPIC, resource_name="t", configs=(config,))
    return m.IncrementalAlterConfigsRequest(resources=(change,), validate_only=False)


def test_configuration_values_can_be_changed_individually() -> None:
    front = desk()
    front.send(incremental(0, "1000"))
    front.answer(view("t", policy=hard_limit(WEEK_US, 7)))
    assert front.commands == [do.SetPolicy("t", 0, hard_limit(1_000_000, 7))]
    front.answer(PolicySet(already=False))
    assert front.reply().responses[0].error_code == 0
    front.send(incremental(2, "1000"))
    front.answer(view("t"))
    assert front.reply().responses[0].error_code == Code.INVALID_CONFIG


def test_policy_and_configuration_convert_both_ways() -> None:
    for policy in (WEEK, hard_limit(0, 5), hard_limit(2000, 5), Policy(keep_all=True)):
        assert changed(WEEK, dict(configuration(policy))) == policy


@pytest.mark.parametrize("value", [str((1 << 63) - 1), str(1 << 62)])
def test_retention_time_beyond_the_supported_range_keeps_all_messages(value: str) -> None:
    """In microseconds, the time would not fit into the 64 bits of a command."""
    assert changed(WEEK, {"retention.ms": value}) == Policy(keep_all=True)


@pytest.mark.parametrize("name", ["retention.ms", "retention.bytes", "cleanup.policy"])
@pytest.mark.parametrize("value", ["9" * 4000, "\u20ac" * 10_000, "x" * 32_000])
def test_huge_configuration_value_is_refused_with_a_short_message(name: str, value: str) -> None:
    front = desk()
    config = m.TopicConfig(name=name, value=value)
    topic = m.CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=(config,))
    front.send(m.CreateTopicsRequest(topics=(topic,), timeout_ms=1))
    assert not front.asked
    (found,) = front.reply().topics
    assert found.error_code == Code.INVALID_CONFIG
    assert len(found.error_message) <= 1000


def test_front_end_creates_no_topics_without_auto_create() -> None:
    """`--no-auto-create` applies even if the client allows the creation."""
    front = desk()
    front.front.topics._auto_create = False
    front.send(metadata("t", create=True))
    front.answer(no_topics())
    assert not front.asked
    assert front.reply().topics[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
