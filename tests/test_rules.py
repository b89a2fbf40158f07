"""Check that all mutants can be applied, and that the most important ones are detected."""

from __future__ import annotations

import pytest

from tests.mutants import Mutant, assert_detected, detect, replaced
from tools.mutants import mutants, suites

ALL = {mutant.rule: mutant for module in suites([]) for mutant in mutants(module)}

FIRST = [
    "no dedup",
    "ack before fsync",
    "cursor moves at send",
    "the epoch of a put is ignored",
    "the epoch of an ack is ignored",
    "the epoch of a delivery is not checked",
    "messages above the low-water mark are deleted",
    "a late answer is accepted",
    "a gap is ignored",
]


@pytest.mark.long
@pytest.mark.parametrize("rule", FIRST)
def test_missing_rule_fails_a_test(rule: str) -> None:
    """SVC-2 SVC-3 SVC-8 SVC-9 SVC-10"""
    assert_detected(ALL[rule])


def test_every_mutant_can_be_applied() -> None:
    """The rule that a mutant removes still exists, so `make mutants` can remove it."""
    assert len(ALL) >= 100
    for mutant in ALL.values():
        with pytest.MonkeyPatch.context() as patch:
            mutant.plant(patch)


class Door:
    def opens(self) -> bool:
        return True


def door_opens(seed: int) -> None:
    assert Door().opens()


def test_mutant_that_changes_nothing_is_not_detected() -> None:
    kept = Mutant("nothing", replaced(Door, "opens", "True", "True"), door_opens, 3)
    assert detect(kept) is None
    with pytest.raises(AssertionError, match="not detected in 3 runs"):
        assert_detected(kept)


def test_mutant_that_breaks_more_than_a_rule_does_not_count_as_detected() -> None:
    unfit = Mutant("all", replaced(Door, "opens", "True", "self.key"), door_opens, 3)
    with pytest.raises(AttributeError):
        detect(unfit)


def test_mutant_is_removed_after_it_was_detected() -> None:
    shut = Mutant("open door", replaced(Door, "opens", "True", "False"), door_opens, 3)
    assert_detected(shut)
    assert Door().opens()
