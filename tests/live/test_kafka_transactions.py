"""Run transactions of unmodified Kafka clients through `oncecast kafka` (TXN-1, KAF-2)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from oncecast import blocking
from tests.live.test_kafka import Place, own, shared
from tests.live.test_serve import PATIENCE

__all__ = ["own", "shared"]  # fixtures

pytestmark = pytest.mark.long


def transactional(place: Place, id: str) -> Any:
    settings = {"bootstrap.servers": place.kafka, "transactional.id": id, "linger.ms": 0}
    producer = confluent_kafka.Producer({**settings, "reconnect.backoff.max.ms": 200})
    producer.init_transactions(PATIENCE)
    return producer


def reader(place: Place, group: str, topic: str, isolation: str = "read_committed") -> Any:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": place.kafka,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "session.timeout.ms": 6000,
            "reconnect.backoff.max.ms": 200,
        }
    )
    consumer.subscribe([topic])
    return consumer


def stored(place: Place, topic: str) -> list[bytes]:
    with blocking.connect(place.at) as client:
        return [each.value for part in client.scan(topic) for each in part.messages()]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_readers_see_committed_messages_only(shared: Place, isolation: str) -> None:
    """TXN-1, KAF-2: an aborted message is never visible, and an open one delays no reader."""
    topic = f"books-{isolation}"
    producer, other = transactional(shared, topic), transactional(shared, f"open-{isolation}")
    other.begin_transaction()
    other.produce(topic, b"open")
    other.flush()
    for number in range(4):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(topic, b"%d.%d" % (number, part))
        if number % 2:
            producer.flush()
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    consumer = reader(shared, topic, topic, isolation)
    found: list[bytes] = []
    while len(found) < 6:
        found += [each.value() for each in consumer.consume(6 - len(found), PATIENCE)]
    consumer.close()
    assert found == [b"0.0", b"0.1", b"0.2", b"2.0", b"2.1", b"2.2"]
    assert stored(shared, topic) == found
    other.abort_transaction()


def test_newer_producer_fences_an_older_one(shared: Place) -> None:
    """TXN-1"""
    old = transactional(shared, "fenced")
    old.begin_transaction()
    old.produce("fenced", b"old")
    old.flush()
    new = transactional(shared, "fenced")
    with pytest.raises(KafkaException) as refused:
        old.commit_transaction()
    assert refused.value.args[0].code() == KafkaError._FENCED
    new.begin_transaction()
    new.produce("fenced", b"new")
    new.commit_transaction()
    assert stored(shared, "fenced") == [b"new"]


def test_commit_of_an_earlier_generation_is_refused(shared: Place) -> None:
    """TXN-1, KAF-3: a consumer that has lost its partition cannot commit its offset."""
    with blocking.connect(shared.at) as client:
        for number in range(4):
            client.create_subscription("orders", "keep")
            client.put("orders", b"%d" % number)
    consumer, producer = reader(shared, "orders", "orders"), transactional(shared, "orders")
    assert len(consumer.consume(2, PATIENCE)) == 2
    producer.begin_transaction()
    producer.produce("bills", b"bill")
    old = consumer.consumer_group_metadata()
    consumer.close()
    later = reader(shared, "orders", "orders")
    assert later.poll(PATIENCE) is not None
    with pytest.raises(KafkaException):
        producer.send_offsets_to_transaction([TopicPartition("orders", 0, 2)], old, PATIENCE)
    producer.abort_transaction()
    later.close()
    assert stored(shared, "bills") == []


COUNT, KILLS = 200, 2


def put_inputs(place: Place) -> list[bytes]:
    values = [b"%d" % number for number in range(COUNT)]
    with blocking.connect(place.at) as client:
        client.create_subscription("inputs", "keep")
        client.put_many("inputs", values)
        client.create_subscription("outputs", "keep")
    return values


def copy_with_librdkafka(place: Place, kill_at: list[int]) -> None:
    """Copy each input once, with a new producer and consumer after each failure."""
    done = 0
    while done < COUNT:
        producer, consumer = transactional(place, "copier"), reader(place, "copier", "inputs")
        try:
            while done < COUNT:
                messages = consumer.consume(10, 0.5)
                if not messages:
                    done = committed(consumer)
                    continue
                producer.begin_transaction()
                for each in messages:
                    producer.produce("outputs", each.value())
                if kill_at and messages[-1].offset() >= kill_at[0]:
                    kill_at.pop(0)
                    producer.flush(PATIENCE)
                    place.restart_front()
                position = [TopicPartition("inputs", 0, messages[-1].offset() + 1)]
                group = consumer.consumer_group_metadata()
                producer.send_offsets_to_transaction(position, group, PATIENCE)
                producer.commit_transaction(PATIENCE)
                done = messages[-1].offset() + 1
        except KafkaException:
            done = committed(consumer)
        consumer.close()


def committed(consumer: Any) -> int:
    (position,) = consumer.committed([TopicPartition("inputs", 0)], PATIENCE)
    return max(int(position.offset), 0)


def test_killed_front_end_neither_loses_nor_doubles_what_librdkafka_copies(own: Place) -> None:
    """TXN-1, KAF-2: consume, transform and produce, exactly once through kill -9."""
    values = put_inputs(own)
    copy_with_librdkafka(own, [COUNT * each // (KILLS + 1) for each in range(1, KILLS + 1)])
    assert stored(own, "outputs") == values


async def copy_with_aiokafka(place: Place, kill_at: list[int]) -> None:
    partition, done = aiokafka.TopicPartition("inputs", 0), 0
    while done < COUNT:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=place.kafka, transactional_id="copier"
        )
        consumer = aiokafka.AIOKafkaConsumer(
            "inputs",
            bootstrap_servers=place.kafka,
            group_id="copier",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        await producer.start()
        await consumer.start()
        try:
            while done < COUNT:
                found = await consumer.getmany(partition, max_records=20, timeout_ms=500)
                if not (messages := found.get(partition, [])):
                    done = await consumer.committed(partition) or 0
                    continue
                async with producer.transaction():
                    for each in messages:
                        await producer.send_and_wait("outputs", each.value)
                    if kill_at and messages[-1].offset >= kill_at[0]:
                        kill_at.pop(0)
                        await asyncio.to_thread(place.restart_front)
                    position = {partition: messages[-1].offset + 1}
                    await producer.send_offsets_to_transaction(position, "copier")
                done = messages[-1].offset + 1
        except AioError:
            done = await consumer.committed(partition) or 0
        await consumer.stop()
        with contextlib.suppress(AioError):  # it raises the error of its transaction again
            await producer.stop()


def test_killed_front_end_neither_loses_nor_doubles_what_aiokafka_copies(own: Place) -> None:
    """TXN-1, KAF-2"""
    values = put_inputs(own)
    asyncio.run(asyncio.wait_for(copy_with_aiokafka(own, [COUNT // 2]), 60))
    assert stored(own, "outputs") == values
