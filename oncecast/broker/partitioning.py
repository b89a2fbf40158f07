"""The state of a partitioned topic: its descriptor and its consumer groups.

A partition changes hands in two steps: the member that reads it releases it, and then the next
member gets it under a new term. A partition whose member leaves, or whose time ends, is free at
once. All other partitions stay where they are, so no member stops to read (PART-2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from oncecast.broker.assignment import assigned
from oncecast.wire.partitions import Term
from oncecast.wire.results import Enlisted


class Assignment:
    """The member that reads a partition, and the member that shall read it."""

    __slots__ = ("holder", "target", "term")

    def __init__(self, holder: str = "", term: int = 0, target: str = "") -> None:
        self.holder = holder  # "" if no member may read the partition
        self.term = term  # the term of the holder
        self.target = target


class ConsumerGroup:
    def __init__(self, partitions: int) -> None:
        self.members: dict[str, int] = {}  # by name, the trusted time at which it ends
        self.assignments = [Assignment() for _ in range(partitions)]

    def grow(self, partitions: int, new_term: Callable[[], int]) -> None:
        self.assignments += [Assignment() for _ in range(partitions - len(self.assignments))]
        self._assign(new_term)

    def enlist(
        self,
        member: str,
        lifetime: int,
        released: Iterable[Term],
        now: int,
        new_term: Callable[[], int],
    ) -> None:
        """Add the member or extend its time, and move partitions."""
        self.members[member] = now + lifetime
        for partition, term in released:
            if 0 <= partition < len(self.assignments):
                each = self.assignments[partition]
                if (each.holder, each.term) == (member, term):
                    each.holder = ""
        self._assign(new_term)

    def expire(self, now: int) -> None:
        """Drop all members whose time has ended."""
        for name in [name for name, until in self.members.items() if until <= now]:
            self._drop(name)

    def leave(self, member: str, new_term: Callable[[], int]) -> bool:
        """Drop the member. Return whether it was in the group."""
        known = member in self.members
        self._drop(member)
        self._assign(new_term)
        return known

    def _drop(self, member: str) -> None:
        self.members.pop(member, None)
        for each in self.assignments:
            if each.holder == member:
                each.holder = ""
            if each.target == member:
                each.target = ""

    def _assign(self, new_term: Callable[[], int]) -> None:
        """Choose the next members, and give them the partitions that are free.

        The choice depends on the earlier choice, not on the holders. So it stays the same while
        members release partitions one by one.
        """
        current = [each.target or each.holder for each in self.assignments]
        targets = assigned(tuple(self.members), current)
        for each, target in zip(self.assignments, targets, strict=True):
            each.target = target
            if target and not each.holder:
                each.holder, each.term = target, new_term()

    def view(self, member: str) -> Enlisted:
        held, release, waiting = [], [], False
        for partition, each in enumerate(self.assignments):
            if each.holder != member:
                waiting = waiting or each.target == member
            elif each.target == member:
                held.append((partition, each.term))
            else:
                release.append((partition, each.term))
        return Enlisted(len(self.assignments), tuple(held), tuple(release), waiting)

    def shift(self, by: int) -> None:
        """Move all deadlines, because the trusted time has jumped."""
        for name, until in self.members.items():
            self.members[name] = max(until + by, 0)


class Descriptor:
    def __init__(self, count: int) -> None:
        self.count = count
        self.closing = False  # the topic is being deleted
        self.epoch = 0  # changes whenever a consumer group is added
        self.groups: dict[str, ConsumerGroup] = {}

    def shift(self, by: int) -> None:
        for each in self.groups.values():
            each.shift(by)
