"""Simulated consumer groups keep their promises: see `group_storm` (PART-1, PART-2)."""

from __future__ import annotations

import pytest

from tests.client.group_storm import Storm
from tests.seeds import seeds

PER_TEST = 5


def storm(seed: int) -> Storm:
    found = Storm(seed)
    try:
        found.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed} at {found.now:.3f} s: {error}") from error
    return found


@pytest.mark.long
@pytest.mark.parametrize("first", seeds(10, 2000, PER_TEST))
def test_group_gets_each_message_once_and_in_order(first: int) -> None:
    """PART-1 PART-2: members crash, stall, join and leave, and the topic grows."""
    found = [storm(seed) for seed in range(first, first + PER_TEST)]
    assert sum(each.count for each in found) > 3 * PER_TEST
    assert any(each.late for each in found)
