"""Handlers for commands that manage topics, limits, time and the log."""

from __future__ import annotations

from oncecast.broker.delays import number_at
from oncecast.broker.dividing import belongs, create_fault, same_kind
from oncecast.broker.partitioning import Descriptor
from oncecast.broker.registry import Registry
from oncecast.wire.commands import (
    Carry,
    CreateTopic,
    DeleteTopic,
    Put,
    SetLimits,
    SetPolicy,
    Tick,
)
from oncecast.wire.errors import (
    InvalidArgument,
    InvalidTopic,
    NoSuchTopic,
    Partitioned,
    TooMany,
    TopicExists,
)
from oncecast.wire.results import (
    Carried,
    LimitsSet,
    PolicySet,
    Ticked,
    TopicCreated,
    TopicDeleted,
)


class Administering:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def create(
        self, slot: int, command: CreateTopic
    ) -> TopicCreated | InvalidArgument | TopicExists | InvalidTopic | TooMany:
        registry = self._registry
        registry.pass_time(command.at)
        if command.policy.fault:
            return InvalidArgument(command.policy.fault)
        fault = create_fault(command)
        if fault is not None:
            return fault
        topic = registry.topics.get(command.topic)
        if topic is None:
            refusal = registry.refusal_to_make(command.topic)
            if refusal is not None:
                return refusal
            if command.partitions and registry.is_awaited(command.topic):
                return TopicExists(command.topic)  # a held share will make it
            made = registry.make(command.topic, command.policy, declared=True)
            made.partition_of = command.partition_of
            if command.partitions:
                made.descriptor = Descriptor(command.partitions)
                registry.follow_partitions(made)
            return TopicCreated(made.id, already=False)
        if topic.policy != command.policy or not same_kind(topic, command):
            return TopicExists(command.topic)
        topic.declared = True
        return TopicCreated(topic.id, already=True)

    def set_policy(
        self, slot: int, command: SetPolicy
    ) -> PolicySet | InvalidArgument | NoSuchTopic | InvalidTopic:
        registry = self._registry
        clock = registry.pass_time(command.at)
        if command.policy.fault:
            return InvalidArgument(command.policy.fault)
        topic = registry.topics.get(command.topic)
        if topic is None:
            return registry.missing(command.topic)
        already = topic.policy == command.policy
        topic.policy = command.policy
        registry.follow_age(topic)
        topic.collect(clock)
        registry.release(topic)
        return PolicySet(already)

    def delete(
        self, slot: int, command: DeleteTopic
    ) -> TopicDeleted | Partitioned | InvalidArgument:
        self._registry.pass_time(command.at)
        topic = self._registry.topics.get(command.topic)
        if topic is None or (command.partition_of and not belongs(topic, command.partition_of)):
            return TopicDeleted(already=True)
        descriptor, base = topic.descriptor, topic.partition_of
        if descriptor is not None and not (command.partition_of and descriptor.closing):
            return Partitioned(command.topic, descriptor.count)
        if base and not command.partition_of:
            return InvalidArgument(
                f"topic {command.topic!r} is a partition of {base!r}; delete {base!r} instead"
            )
        self._registry.remove(topic)
        return TopicDeleted(already=False)

    def set_limits(self, slot: int, command: SetLimits) -> LimitsSet:
        registry, before = self._registry, self._registry.limits
        registry.limits = command.limits
        registry.level = max(registry.level, command.level)
        registry.follow_level()
        if command.limits.producer_idle_us and not before.producer_idle_us:
            registry.follow_use()
        if command.limits.source_idle_us and not before.source_idle_us:
            registry.follow_sources()
        return LimitsSet()

    def tick(self, slot: int, command: Tick) -> Ticked:
        registry = self._registry
        clock = registry.pass_time(command.at, command.elapsed)
        for topic in registry.aging.values():
            topic.collect(clock)
        registry.staging.expire(clock.trusted - registry.limits.staged_age_us)
        released = registry.release_delayed()
        if command.producers:
            for topic, name in list(registry.idle_producers(clock.trusted)):
                del topic.producers[name]
                registry.release(topic)
            for source in list(registry.idle_sources(clock.trusted)):
                registry.delete_source(source)
        return Ticked(released)

    def carry(self, slot: int, command: Carry) -> Carried:
        """Move the entry in the old slot to this slot, unless it has been dropped or moved."""
        moved = self._move(command, slot)
        if moved:
            self._registry.live_slots.add(slot)
            self._registry.live_slots.drop(command.old)
        return Carried(moved)

    def _move(self, command: Carry, slot: int) -> bool:
        copied = command.command
        if isinstance(copied, Put) or command.offset >= 0:
            topic = self._registry.topics.get(copied.topic)
            if topic is not None and command.offset < -1:
                return topic.delays.move(number_at(command.offset), command.old, slot)
            return topic is not None and topic.index.move(command.offset, command.old, slot)
        key = self._registry.stage_key(copied)
        part = self._registry.staging.find(key, copied.number, copied.part)
        if part is None or part.slot != command.old:
            return False
        part.slot = slot
        return True
