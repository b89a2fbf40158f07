"""A rule on a topic also covers its partitions, and no other topics (SEC-2, PART-1)."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire import results as done
from oncecast.wire.frames import Answer, Delivery, Fetch, FlowEnded, Look, Scan, Scanned, View
from oncecast.wire.partitions import AddGroup, Enlist, SetPartitions
from tests.broker.desk import ANN, BOB, packed
from tests.broker.guarded_desk import ROOT, GuardedDesk

DENIED = errors.Denied()


def prepared() -> GuardedDesk:
    """Return a node where bob may put into `t`, which has a partition, and ann may read it."""
    desk = GuardedDesk()
    desk.secure()
    desk.call(ROOT, do.CreateTopic("t#0", 0, partition_of="t"))
    desk.call(ROOT, do.CreateTopic("t", 0, partitions=1))
    desk.call(ROOT, do.CreateTopic("t#1", 0))
    desk.allow("bob", "put", topic="t")
    desk.allow("ann", "read", "ack", topic="t")
    return desk


desk = pytest.fixture(prepared)


def test_rule_on_a_topic_covers_its_partitions(desk: GuardedDesk) -> None:
    """SEC-2"""
    data = packed(b"x")
    epoch = desk.call(BOB, do.OpenProducer("t#0", "bob", "inc", 0)).epoch
    put = do.Put("t#0", "bob", epoch, 0, 1, len(data), 0, data)
    desk.call(ANN, do.Subscribe("t#0", "ann", do.FromEarliest(), 0, create=False))
    assert isinstance(desk.call(BOB, put), done.Appended)
    reading = desk.call(ANN, do.Attach("t#0", "ann", "inc", term=1)).epoch
    fetch = Fetch("t#0", "ann", reading, 0, 0, 10, 1000)
    (delivery,) = desk.send(ANN, fetch)
    assert isinstance(delivery, Delivery)
    acked = Fetch("t#0", "ann", reading, 1, 1, 10, 1000)
    assert not any(isinstance(each, FlowEnded) for each in desk.send(ANN, acked))
    assert isinstance(desk.send(ANN, Scan(1, "t#0", do.FromEarliest(), bytes=100))[0], Scanned)
    assert isinstance(desk.call(ANN, AddGroup("t", "ann", 0)), done.GroupAdded)
    assert isinstance(desk.call(ANN, Enlist("t", "ann", "m", 1_000_000, 0)), done.Enlisted)
    assert desk.call(BOB, SetPartitions("t", 0, 2)) == DENIED


def test_list_shows_the_partitions_of_visible_topics(desk: GuardedDesk) -> None:
    """SEC-2"""
    (view,) = desk.send(ANN, Look(1))
    assert isinstance(view, View)
    assert [(each.name, each.partitions, each.partition_of) for each in view.topics] == [
        ("t", 1, ""),
        ("t#0", 0, "t"),
    ]


@pytest.mark.parametrize("topic", ["t#1", "t#2", "u#0"])
def test_rule_on_a_topic_covers_no_plain_topic_with_such_a_name(
    desk: GuardedDesk, topic: str
) -> None:
    """SEC-2: an existing topic keeps its own rules."""
    requests: list[Any] = [
        do.Subscribe(topic, "ann", do.FromNew(), 0),
        do.Attach(topic, "ann", "inc", term=1),
    ]
    for request in requests:
        assert desk.call(ANN, request) == DENIED
    assert desk.send(ANN, Scan(1, topic, do.FromNew())) == [Answer(1, DENIED)]


def test_manager_of_a_topic_may_create_and_delete_its_partitions(desk: GuardedDesk) -> None:
    """SEC-2"""
    desk.allow("bob", "manage", topic="t")
    create = do.CreateTopic("t#5", 0, partition_of="t")
    assert isinstance(desk.call(BOB, create), done.TopicCreated)
    delete = do.DeleteTopic("t#5", 0, partition_of="t")
    assert desk.call(BOB, delete) == done.TopicDeleted(already=False)
    assert desk.call(BOB, do.DeleteTopic("t#1", 0, partition_of="t")) == done.TopicDeleted(True)
    assert desk.call(BOB, do.CreateTopic("t#1", 0, partition_of="t")) == errors.TopicExists("t#1")
    assert desk.call(BOB, do.CreateTopic("t#5", 0)) == DENIED
    assert desk.call(BOB, do.DeleteTopic("t#1", 0)) == DENIED
    assert desk.call(BOB, do.CreateTopic("x#1", 0, partition_of="t")) == DENIED
    assert desk.call(BOB, do.CreateTopic("u#1", 0, partition_of="u")) == DENIED
