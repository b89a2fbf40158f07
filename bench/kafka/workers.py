"""The Kafka clients of the torture: two idempotent producers, a transactional one, and a copier."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

TRANSACTION = 500  # messages
ABORTED_EVERY = 4  # every fourth transaction is aborted on purpose
ABORTED = b"aborted"
PATIENCE = 120.0
IN_QUEUE = 50_000
STUCK = 30.0  # seconds without a message after which a consumer is replaced


class Worker(threading.Thread):
    """A client in a thread. `failure` is the error that ended it."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.done = self.errors = self.aborts = self.restarts = 0
        self.failure = ""

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001  # the report shows any failure of a client
            self.failure = repr(error)

    def work(self) -> None:
        raise NotImplementedError


class Idempotent(Worker):
    """Puts the numbers below `count`. Number n goes to partition n % partitions."""

    def __init__(self, kafka: str, topic: str, partitions: int, count: int, rate: float) -> None:
        super().__init__()
        self._kafka, self._topic, self._partitions = kafka, topic, partitions
        self.count, self._rate = count, rate

    def work(self) -> None:
        settings = {
            "bootstrap.servers": self._kafka,
            "enable.idempotence": True,
            "message.timeout.ms": int(PATIENCE * 1000),
            "log_level": 0,
        }
        producer = confluent_kafka.Producer(settings)
        began = time.monotonic()
        for number in range(self.count):
            while len(producer) >= IN_QUEUE:
                producer.poll(0.05)
            while number > (time.monotonic() - began) * self._rate:
                producer.poll(0.02)
            where = number % self._partitions
            producer.produce(
                self._topic, b"%d" % number, partition=where, on_delivery=self._delivered
            )
        assert producer.flush(2 * PATIENCE) == 0, "messages are left in the queue"

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.done += 1
        else:
            self.errors += 1


class Transactional(Worker):
    """Puts the numbers below `count` in transactions, and aborts some transactions."""

    def __init__(self, kafka: str, topic: str, count: int) -> None:
        super().__init__()
        self._kafka, self._topic, self.count = kafka, topic, count

    def _open(self) -> Any:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self._kafka, "transactional.id": "torture", "log_level": 0}
        )
        repeated(producer.init_transactions)
        return producer

    def work(self) -> None:
        producer, turn = self._open(), 0
        while self.done < self.count:
            turn += 1
            aborted = turn % ABORTED_EVERY == 0
            end = min(self.done + TRANSACTION, self.count)
            try:
                producer.begin_transaction()
                for number in range(self.done, end):
                    producer.produce(self._topic, ABORTED if aborted else b"%d" % number)
                if aborted:
                    producer.abort_transaction(PATIENCE)
                    self.aborts += 1
                else:
                    repeated(producer.commit_transaction)
                    self.done = end
            except KafkaException as failed:
                producer = self._recovered(producer, failed.args[0])

    def _recovered(self, producer: Any, error: KafkaError) -> Any:
        """Abort, or open the transactional id again and learn whether the commit took effect."""
        self.errors += 1
        if error.txn_requires_abort():
            try:
                repeated(producer.abort_transaction)
                return producer
            except KafkaException:
                pass
        self.restarts += 1
        producer = self._open()
        last = last_value(self._kafka, self._topic)
        self.done = 0 if last is None else int(last) + 1
        return producer


class Copier(Worker):
    """Copies a topic to another one with consume-transform-produce transactions."""

    def __init__(self, kafka: str, source: str, target: str, count: int) -> None:
        super().__init__()
        self._kafka, self._source, self._target, self.count = kafka, source, target, count
        self._revoked = False

    def work(self) -> None:
        while self.done < self.count:
            consumer = self._consumer()
            try:
                self._copy(consumer)
            except KafkaException:
                self.restarts += 1
            finally:
                consumer.close()

    def _consumer(self) -> Any:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._kafka,
                "group.id": "copier",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 6000,
                "log_level": 0,
            }
        )
        self._revoked = False
        consumer.subscribe([self._source], on_revoke=self._lost, on_lost=self._lost)
        return consumer

    def _lost(self, consumer: Any, partitions: Any) -> None:
        """Note that messages in hand may belong to partitions that another member has now."""
        self._revoked = True

    def _copy(self, consumer: Any) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self._kafka, "transactional.id": "copier", "log_level": 0}
        )
        repeated(producer.init_transactions)
        idle_since = time.monotonic()
        while self.done < self.count:
            found = [each for each in consumer.consume(2000, 0.5) if each.error() is None]
            if self._revoked or time.monotonic() > idle_since + STUCK:
                self.restarts += 1
                return
            if not found:
                self.done = self._committed()
                continue
            idle_since = time.monotonic()
            producer.begin_transaction()
            for each in found:
                producer.produce(self._target, each.value(), partition=each.partition())
            ends = {each.partition(): each.offset() + 1 for each in found}
            positions = [TopicPartition(self._source, *each) for each in ends.items()]
            try:
                members = consumer.consumer_group_metadata()
                producer.send_offsets_to_transaction(positions, members, PATIENCE)
                repeated(producer.commit_transaction)
            except KafkaException as failed:
                self.errors += 1
                if failed.args[0].txn_requires_abort():
                    repeated(producer.abort_transaction)
                raise  # A new consumer begins at the committed offsets.

    def _committed(self) -> int:
        return sum(ends(self._kafka, self._target).values())


def repeated(step: Any) -> None:
    """Call a step of a transaction until it succeeds or cannot be repeated."""
    give_up = time.monotonic() + PATIENCE
    while True:
        try:
            step(30.0)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > give_up:
                raise


def reader(kafka: str, isolation: str = "read_committed") -> Any:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )


def ends(kafka: str, topic: str) -> dict[int, int]:
    """Return the end of each partition."""
    consumer = reader(kafka)
    try:
        partitions = consumer.list_topics(topic, PATIENCE).topics[topic].partitions
        return {
            each: consumer.get_watermark_offsets(TopicPartition(topic, each), PATIENCE)[1]
            for each in partitions
        }
    finally:
        consumer.close()


def last_value(kafka: str, topic: str) -> bytes | None:
    """Return the last message of partition 0, or None if it is empty."""
    end = ends(kafka, topic)[0]
    if not end:
        return None
    consumer = reader(kafka)
    consumer.assign([TopicPartition(topic, 0, end - 1)])
    try:
        message = consumer.poll(PATIENCE)
        assert message is not None
        assert message.error() is None, message.error()
        value: bytes = message.value()
        return value
    finally:
        consumer.close()


def contents(kafka: str, topic: str, isolation: str) -> dict[int, list[bytes]]:
    """Return all messages of a topic, by partition."""
    wanted = ends(kafka, topic)
    consumer = reader(kafka, isolation)
    consumer.assign([TopicPartition(topic, each, 0) for each in wanted])
    found: dict[int, list[bytes]] = defaultdict(list)
    left = sum(wanted.values())
    while left:
        messages = consumer.consume(min(left, 10_000), 5.0)
        for each in messages:
            assert each.error() is None, each.error()
            found[each.partition()].append(each.value())
        left -= len(messages)
    consumer.close()
    return found
