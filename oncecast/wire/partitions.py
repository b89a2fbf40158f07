"""Partitioned topics: a descriptor, and one plain topic for each partition.

The partitions of topic `orders` are the topics `orders#0`, `orders#1` and so on. On a ring, they
belong to different groups. The descriptor is the topic `orders` itself. It has no messages. It
knows the number of partitions, and the consumer groups that share them.

A client creates the partitions first and the descriptor last, so a descriptor is always complete.
To delete a topic, a client closes the descriptor, deletes the partitions, and deletes the
descriptor. Each command may be repeated, so another client can finish what one has begun.

The members of a consumer group enlist at the descriptor, and enlist again before their time ends.
The machine assigns the partitions. An assignment has a term, a number that only grows. A member
attaches to a partition with its term, and the partition then refuses lower terms. A late member
can therefore not take a partition back (PART-2).

    client → node    Call(SetPartitions), Call(AddGroup), Call(RemoveGroup), Call(Enlist),
                     Call(LeaveGroup)
    node → client    Answer

These commands need feature level 6.
"""

from __future__ import annotations

from typing import ClassVar
from zlib import crc32

from oncecast.kernel.protocol import Value

PARTITION_LEVEL = 6  # the feature level of all commands and fields of this module

# Never change these limits: all replicas must compute the same result for the same command.
PARTITIONS_MAX = 1000  # maximum number of partitions of one topic
MEMBERS_MAX = 1000  # maximum number of members of one consumer group
LIFETIME_MIN_US, LIFETIME_MAX_US = 1_000_000, 3600 * 1_000_000

MARK = "#"

Term = tuple[int, int]  # a partition, and the term of its assignment


class SetPartitions(Value, tag="SetPartitions"):
    """Raise the number of partitions to `count`, or close the topic with 0, to delete it.

    `expected` is the epoch of the topic's consumer groups, so that the caller has subscribed all of
    them to the new partitions. If another epoch is current, the machine answers `Fenced`.
    """

    feature_level: ClassVar[int] = PARTITION_LEVEL

    topic: str
    at: int
    count: int
    expected: int = 0
    token: str = ""


class AddGroup(Value, tag="AddGroup"):
    """Add a consumer group to a partitioned topic."""

    feature_level: ClassVar[int] = PARTITION_LEVEL

    topic: str
    subscription: str
    at: int
    token: str = ""


class RemoveGroup(Value, tag="RemoveGroup"):
    feature_level: ClassVar[int] = PARTITION_LEVEL

    topic: str
    subscription: str
    at: int
    token: str = ""


class Enlist(Value, tag="Enlist"):
    """Join a consumer group, or stay in it, for `lifetime_us` from now on.

    `released` are assignments that the member has stopped to read.
    """

    feature_level: ClassVar[int] = PARTITION_LEVEL

    topic: str
    subscription: str
    member: str
    lifetime_us: int
    at: int
    released: tuple[Term, ...] = ()


class LeaveGroup(Value, tag="LeaveGroup"):
    """Leave a consumer group, after the member has stopped to read all its partitions."""

    feature_level: ClassVar[int] = PARTITION_LEVEL

    topic: str
    subscription: str
    member: str
    at: int


OfGroup = AddGroup | RemoveGroup | Enlist | LeaveGroup


def partition_topic(topic: str, partition: int) -> str:
    """Return the name of the topic that stores a partition."""
    return f"{topic}{MARK}{partition}"


def is_partition(name: str, topic: str) -> bool:
    """Return whether `name` is the name of a partition of `topic`."""
    base, mark, number = name.rpartition(MARK)
    if base != topic or not mark or not number.isascii() or not number.isdigit():
        return False
    return (
        len(number) <= len(str(PARTITIONS_MAX))
        and str(int(number)) == number
        and (int(number) < PARTITIONS_MAX)
    )


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key. librdkafka's `consistent_random` returns the same."""
    return crc32(key) % partitions
