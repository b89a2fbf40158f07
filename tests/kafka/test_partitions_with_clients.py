"""Let confluent-kafka use topics with several partitions (PART-1, KAF-1, KAF-3)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from oncecast.testing import Node

PATIENCE = 20.0
KEYS, COUNT = 20, 400


def done(futures: dict[Any, Any]) -> None:
    for each in futures.values():
        each.result(PATIENCE)


def put(kafka: str) -> None:
    """Put numbers under some keys, with the partitions that librdkafka chooses by default."""
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka, "enable.idempotence": True})
    for number in range(COUNT):
        producer.produce("orders", b"%d" % number, key=b"%d" % (number % KEYS))
    assert producer.flush(PATIENCE) == 0


def consumer(kafka: str) -> Any:
    settings = {"bootstrap.servers": kafka, "group.id": "g", "auto.offset.reset": "earliest"}
    made = confluent_kafka.Consumer(settings)
    made.subscribe(["orders"])
    return made


@pytest.mark.long
def test_two_members_share_the_partitions_of_a_topic(oncecast: Node, kafka: str) -> None:
    """PART-1, KAF-3: the messages of each key stay in order."""
    admin = AdminClient({"bootstrap.servers": kafka})
    done(admin.create_topics([NewTopic("orders", num_partitions=4)]))
    put(kafka)
    members = [consumer(kafka), consumer(kafka)]
    found: dict[bytes, list[int]] = defaultdict(list)
    while sum(map(len, found.values())) < COUNT:
        for each in members:
            message = each.poll(0.01)
            if message is not None and message.error() is None:
                found[message.key()].append(int(message.value()))
    assert [len(each.assignment()) for each in members] == [2, 2]
    for each in members:
        each.close()  # commits the offsets
    assert found == {b"%d" % key: list(range(key, COUNT, KEYS)) for key in range(KEYS)}
    cursors = [
        subscription.cursor
        for index in range(4)
        for subscription in oncecast.client.describe(f"orders#{index}").subscriptions
    ]
    assert sum(cursors) == COUNT


@pytest.mark.long
def test_topic_grows_and_a_transaction_puts_to_all_partitions(oncecast: Node, kafka: str) -> None:
    """PART-1, KAF-2"""
    admin = AdminClient({"bootstrap.servers": kafka})
    done(admin.create_topics([NewTopic("orders", num_partitions=2)]))
    done(admin.create_partitions([NewPartitions("orders", 3)]))
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka, "transactional.id": "x"})
    producer.init_transactions(PATIENCE)
    for commit in (False, True):
        producer.begin_transaction()
        for index in range(3):
            producer.produce("orders", b"v", partition=index)
        if commit:
            producer.commit_transaction(PATIENCE)
        else:
            producer.abort_transaction(PATIENCE)
    assert [oncecast.client.describe(f"orders#{index}").next for index in range(3)] == [1, 1, 1]
    done(admin.delete_topics(["orders"]))
    assert admin.list_topics(timeout=PATIENCE).topics == {}
