"""Assign the partitions of a topic to the members of a consumer group.

The assignment is balanced: the numbers of partitions of two members differ by at most one. It is
sticky: among all balanced assignments, it moves as few partitions as possible (PART-2).
"""

from __future__ import annotations

from collections.abc import Sequence


def assigned(members: Sequence[str], current: Sequence[str]) -> list[str]:
    """Return the member for each partition, given the current ones.

    A partition whose current member is not in `members` goes to another member.
    """
    if not members:
        return [""] * len(current)
    quota = quotas(members, current)
    target = [""] * len(current)
    for partition, member in enumerate(current):
        if quota.get(member, 0):
            target[partition] = member
            quota[member] -= 1
    free = [member for member in members for _ in range(quota[member])]
    for partition, member in enumerate(target):
        if not member:
            target[partition] = free.pop(0)
    return target


def quotas(members: Sequence[str], current: Sequence[str]) -> dict[str, int]:
    """Return how many partitions each member gets.

    If they cannot all get the same number, those that have most now get one more.
    """
    share, rest = divmod(len(current), len(members))
    counts = dict.fromkeys(members, 0)
    for member in current:
        if member in counts:
            counts[member] += 1
    largest = sorted(members, key=lambda member: -counts[member])[:rest]
    quota = dict.fromkeys(members, share)
    for member in largest:
        quota[member] += 1
    return quota
