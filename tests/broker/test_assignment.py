"""The assignment of partitions is balanced and sticky (PART-2)."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from oncecast.broker.assignment import assigned

NAMES = ("ann", "bob", "cleo", "dan")


def moved(before: tuple[str, ...], after: tuple[str, ...]) -> int:
    """Return how many partitions of members that are still there change hands."""
    there = set(after)
    return sum(old != new for old, new in zip(before, after, strict=True) if old in there)


def balanced(members: tuple[str, ...], target: tuple[str, ...]) -> bool:
    counts = [target.count(member) for member in members]
    return set(target) <= set(members) and max(counts) - min(counts) <= 1


def fewest_moves(members: tuple[str, ...], current: tuple[str, ...]) -> int:
    """Try all assignments: the reference model."""
    return min(
        moved(current, target)
        for target in product(members, repeat=len(current))
        if balanced(members, target)
    )


@pytest.mark.parametrize("seed", range(40))
def test_assignment_is_balanced_and_moves_as_little_as_possible(seed: int) -> None:
    """PART-2"""
    rng = Random(seed)
    members = tuple(rng.sample(NAMES, rng.randrange(1, 4)))
    current = tuple(rng.choice((*NAMES, "")) for _ in range(rng.randrange(1, 6)))
    target = tuple(assigned(members, current))
    assert balanced(members, target)
    # A member that is gone frees its partitions, so they do not count as moved.
    left = tuple(each if each in members else "" for each in current)
    assert moved(left, target) == fewest_moves(members, left)
    assert tuple(assigned(members, target)) == target


def test_first_members_get_the_partitions_that_cannot_be_shared_evenly() -> None:
    """PART-2"""
    assert assigned(("ann", "bob"), [""] * 3) == ["ann", "ann", "bob"]


def test_new_member_gets_the_last_partitions_of_each_member() -> None:
    """PART-2"""
    current = ["ann", "ann", "ann", "bob", "bob", "bob"]
    after = ["ann", "ann", "cleo", "bob", "bob", "cleo"]
    assert assigned(("ann", "bob", "cleo"), current) == after


def test_member_that_has_most_keeps_the_odd_partition() -> None:
    """PART-2: the order of the members does not move a partition."""
    assert assigned(("bob", "ann"), ["ann", "ann", "bob"]) == ["ann", "ann", "bob"]


def test_more_members_than_partitions_leave_some_without() -> None:
    assert assigned(NAMES, ["", "bob"]) == ["ann", "bob"]
    assert assigned((), ["ann", ""]) == ["", ""]
