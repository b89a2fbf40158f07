"""Handlers for producer commands: store each message once, in its producer's order."""

from __future__ import annotations

from oncecast.broker.clock import Clock
from oncecast.broker.producer import Producer
from oncecast.broker.registry import Registry
from oncecast.broker.topic import Topic
from oncecast.wire.commands import ANY_EPOCH, CloseProducer, OpenProducer, Put, TimedPut
from oncecast.wire.errors import (
    Fenced,
    Gap,
    InvalidArgument,
    InvalidName,
    InvalidTopic,
    NameInUse,
    NoSuchTopic,
    TooLarge,
    TooMany,
    Unopened,
)
from oncecast.wire.limits import Limits, is_name
from oncecast.wire.results import Already, Appended, Opened, ProducerClosed


class Producing:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def open(
        self, slot: int, command: OpenProducer
    ) -> Opened | Fenced | InvalidName | InvalidTopic | NoSuchTopic | NameInUse | TooMany:
        registry = self._registry
        clock = registry.pass_time(command.at)
        for what, name in (("producer", command.producer), ("incarnation", command.incarnation)):
            if not is_name(name):
                return InvalidName(what)
        if command.directory_id and not is_name(command.directory_id):
            return InvalidName("state directory id")
        topic = registry.topics.get(command.topic)
        producer = topic.producers.get(command.producer) if topic is not None else None
        if producer is None and command.expected > 0:
            return Fenced(0)
        if registry.is_reserved(command.topic, command.producer):
            return NameInUse(command.topic, command.producer)
        if topic is None:
            if not command.create:
                return registry.missing(command.topic)
            refusal = registry.refusal_to_make(command.topic)
            if refusal is not None:
                return refusal
            topic = registry.make(command.topic)
        if producer is None:
            full = registry.refusal_to_produce(topic)
            if full is not None:
                registry.release(topic)  # removes the topic if this command created it
                return full
            producer = Producer(registry.new_epoch(), command.incarnation)
            topic.producers[command.producer] = producer
            if registry.limits.producer_idle_us:
                producer.follow_use(clock.now)
        else:
            why = self._take_over(producer, command)
            if why is not None:
                return why
        mine = producer.keep(command.directory_id, forget=not registry.limits.directories_max)
        producer.used = clock.now if producer.record else 0
        return Opened(producer.epoch, producer.next, topic.id, mine, producer.record)

    def _take_over(
        self, producer: Producer, command: OpenProducer
    ) -> NameInUse | Fenced | TooMany | None:
        """Give the name to the command's incarnation. Return a refusal, or None on success."""
        same, directories_max = (
            producer.incarnation == command.incarnation,
            self._registry.limits.directories_max,
        )
        if not producer.incarnation:
            return NameInUse(command.topic, command.producer)
        if not same and command.expected not in (ANY_EPOCH, producer.epoch):
            return Fenced(producer.epoch)
        full = 0 < directories_max <= len(producer.earlier)
        if full and command.directory_id and not producer.knows(command.directory_id):
            # A topic that forgot a directory could store that directory's messages twice.
            return TooMany("state directories under one producer name", directories_max)
        if not same:
            producer.epoch, producer.incarnation = self._registry.new_epoch(), command.incarnation
        return None

    def put(
        self, slot: int, command: Put
    ) -> (
        Appended
        | Already
        | Unopened
        | Fenced
        | Gap
        | InvalidArgument
        | TooLarge
        | InvalidTopic
        | TooMany
    ):
        registry = self._registry
        clock = registry.pass_time(command.at)
        topic = registry.topics.get(command.topic)
        fault: InvalidArgument | TooLarge | Already | None
        fault = batch_fault(command.count, command.size, registry.limits)
        if isinstance(fault, TooLarge) and topic is not None:
            # The limit may have been higher when an earlier copy of this put was stored.
            fault = topic.already(command) or fault
        if fault is not None:
            return fault
        if command.sequence < 0:
            return InvalidArgument(
                f"the sequence number is {command.sequence} (minimum 0); count messages from 0"
            )
        if topic is None:
            if not is_name(command.topic):
                return InvalidTopic()
            return Unopened(command.topic, command.producer)  # opening creates the topic
        if type(command) is TimedPut:
            return self._put_timed(slot, command, topic, clock)
        return topic.put(slot, command, clock)

    def _put_timed(
        self, slot: int, command: TimedPut, topic: Topic, clock: Clock
    ) -> Appended | Already | Unopened | Fenced | Gap | InvalidArgument | TooMany:
        fault = command.timing.fault_at(clock.now)
        if fault:
            return topic.already(command) or InvalidArgument(fault)
        result = topic.put_timed(slot, command, clock)
        self._registry.follow_delays(topic)
        return result

    def close(self, slot: int, command: CloseProducer) -> ProducerClosed | Fenced:
        topic = self._registry.topics.get(command.topic)
        producer = topic.producers.get(command.producer) if topic is not None else None
        if topic is None or producer is None:
            return ProducerClosed(already=True)
        if command.epoch != producer.epoch:
            return Fenced(producer.epoch)
        del topic.producers[command.producer]
        self._registry.release(topic)
        return ProducerClosed(already=False)


def batch_fault(count: int, size: int, limits: Limits) -> InvalidArgument | TooLarge | None:
    """Return the refusal for a batch of this count and size, or None if it is valid."""
    if count < 1 or size < 0:
        return InvalidArgument(
            f"the batch has {count} messages and {size} bytes (minimum 1 and 0); send the real "
            "counts"
        )
    if count > limits.batch_messages_max:
        return TooLarge("messages", limits.batch_messages_max)
    if size > limits.batch_bytes_max:
        return TooLarge("bytes", limits.batch_bytes_max)
    return None
