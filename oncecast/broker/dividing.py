"""Handlers for commands on partitioned topics. The module `wire.partitions` describes them."""

from __future__ import annotations

from oncecast.broker.partitioning import ConsumerGroup, Descriptor
from oncecast.broker.registry import Registry
from oncecast.broker.topic import Topic
from oncecast.wire.commands import CreateTopic
from oncecast.wire.errors import (
    Fenced,
    InvalidArgument,
    InvalidName,
    InvalidTopic,
    NoSuchTopic,
    NotSubscribed,
    TooMany,
)
from oncecast.wire.limits import is_name
from oncecast.wire.partitions import (
    LIFETIME_MAX_US,
    LIFETIME_MIN_US,
    MEMBERS_MAX,
    PARTITIONS_MAX,
    AddGroup,
    Enlist,
    LeaveGroup,
    RemoveGroup,
    SetPartitions,
    is_partition,
    partition_topic,
)
from oncecast.wire.results import Enlisted, GroupAdded, GroupLeft, GroupRemoved, PartitionsSet

NotDivided = InvalidTopic | NoSuchTopic | InvalidArgument


class Dividing:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    # -- partitions --

    def set_partitions(
        self, slot: int, command: SetPartitions
    ) -> PartitionsSet | NotDivided | TooMany | Fenced:
        registry = self._registry
        registry.pass_time(command.at)
        found = self._find(command.topic)
        if not isinstance(found, Descriptor):
            return found
        if not command.count:
            already, found.closing = found.closing, True
            return PartitionsSet(found.count, already)
        fault = count_fault(command.count)
        if found.closing:
            return NoSuchTopic(command.topic)
        if fault is not None:
            return fault
        if command.count < found.count:
            return InvalidArgument(
                f"topic {command.topic!r} has {found.count} partitions, and {command.count} are "
                "requested; the number can only grow"
            )
        if command.count == found.count:
            return PartitionsSet(found.count, already=True)
        if command.expected != found.epoch:
            return Fenced(found.epoch)
        found.count = command.count
        for group in found.groups.values():
            group.grow(found.count, registry.new_epoch)
        return PartitionsSet(found.count, already=False)

    # -- consumer groups --

    def add_group(
        self, slot: int, command: AddGroup
    ) -> GroupAdded | NotDivided | InvalidName | TooMany:
        registry = self._registry
        registry.pass_time(command.at)
        if not is_name(command.subscription):
            return InvalidName("subscription")
        found = self._open(command.topic)
        if not isinstance(found, Descriptor):
            return found
        if command.subscription in found.groups:
            return GroupAdded(found.count, already=True)
        if len(found.groups) >= registry.limits.subscriptions_max:
            return TooMany("subscriptions of the topic", registry.limits.subscriptions_max)
        found.groups[command.subscription] = ConsumerGroup(found.count)
        found.epoch = registry.new_epoch()
        return GroupAdded(found.count, already=False)

    def remove_group(self, slot: int, command: RemoveGroup) -> GroupRemoved | NotDivided:
        self._registry.pass_time(command.at)
        found = self._find(command.topic)
        if not isinstance(found, Descriptor):
            return found
        known = found.groups.pop(command.subscription, None)
        return GroupRemoved(already=known is None)

    def enlist(
        self, slot: int, command: Enlist
    ) -> Enlisted | NotDivided | InvalidName | NotSubscribed | TooMany:
        registry = self._registry
        now = registry.pass_time(command.at).trusted
        if not is_name(command.member):
            return InvalidName("member")
        if not LIFETIME_MIN_US <= command.lifetime_us <= LIFETIME_MAX_US:
            return InvalidArgument(
                f"the session lasts {command.lifetime_us / 1e6:g} s (limits "
                f"{LIFETIME_MIN_US / 1e6:g} and {LIFETIME_MAX_US / 1e6:g}); choose a time within "
                "the limits"
            )
        group = self._group(command.topic, command.subscription)
        if not isinstance(group, ConsumerGroup):
            return group
        group.expire(now)
        if command.member not in group.members and len(group.members) >= MEMBERS_MAX:
            return TooMany("members of the consumer group", MEMBERS_MAX)
        released = command.released
        group.enlist(command.member, command.lifetime_us, released, now, registry.new_epoch)
        return group.view(command.member)

    def leave(self, slot: int, command: LeaveGroup) -> GroupLeft | NotDivided | NotSubscribed:
        self._registry.pass_time(command.at)
        group = self._group(command.topic, command.subscription)
        if not isinstance(group, ConsumerGroup):
            return group
        known = group.leave(command.member, self._registry.new_epoch)
        return GroupLeft(already=not known)

    # -- helpers --

    def _find(self, name: str) -> Descriptor | NotDivided:
        topic = self._registry.topics.get(name)
        if topic is None:
            return self._registry.missing(name)
        if topic.descriptor is None:
            return InvalidArgument(
                f"topic {name!r} has no partitions; create a topic with partitions"
            )
        return topic.descriptor

    def _open(self, name: str) -> Descriptor | NotDivided:
        found = self._find(name)
        if isinstance(found, Descriptor) and found.closing:
            return NoSuchTopic(name)
        return found

    def _group(self, name: str, label: str) -> ConsumerGroup | NotDivided | NotSubscribed:
        found = self._open(name)
        if not isinstance(found, Descriptor):
            return found
        return found.groups.get(label) or NotSubscribed(name, label)


def count_fault(count: int) -> InvalidArgument | TooMany | None:
    if count < 0:
        return InvalidArgument(f"the topic would have {count} partitions; request at least 1")
    return TooMany("partitions of the topic", PARTITIONS_MAX) if count > PARTITIONS_MAX else None


def create_fault(command: CreateTopic) -> InvalidArgument | InvalidTopic | TooMany | None:
    """Return a refusal if the partitions of a new topic are invalid, otherwise None."""
    base = command.partition_of
    if base and (command.partitions or not is_partition(command.topic, base)):
        return InvalidArgument(
            f"{command.topic!r} is not a partition of {base!r}; name partitions {base}#0, {base}#1 "
            "and so on"
        )
    if command.partitions and not is_name(partition_topic(command.topic, PARTITIONS_MAX - 1)):
        return InvalidTopic()
    return count_fault(command.partitions)


def same_kind(topic: Topic, command: CreateTopic) -> bool:
    """Return whether an existing topic has the partitions that the command asks for."""
    count = 0 if topic.descriptor is None else topic.descriptor.count
    closing = topic.descriptor is not None and topic.descriptor.closing
    wanted = (command.partitions, command.partition_of)
    return (count, topic.partition_of) == wanted and not closing


def belongs(topic: Topic, base: str) -> bool:
    """Return whether the topic is a partition of `base`, or its descriptor."""
    return base == (topic.partition_of if topic.descriptor is None else topic.name)
