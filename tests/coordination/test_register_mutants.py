"""Without any one of its rules the register of members is noticed by a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncecast.coordination.register import Members, Register
from tests.coordination import test_register as tests
from tests.mutants import Mutant, exact, must_be_noticed, replaced

pytestmark = pytest.mark.mutants

RULES: dict[str, tuple[Callable[..., None], Any, str, str, str]] = {
    "entries stay": (
        tests.test_process_that_leaves_leaves_nothing_behind,
        Register, "sign_out", "await self._shorten()", "pass",
    ),
    "crashed processes stay": (
        tests.test_crashed_process_of_this_machine_is_removed,
        Register, "sign_in", "await self._remove_ended(me, founders)", "pass",
    ),
    "refused from elsewhere believed": (
        tests.test_founder_elsewhere_is_never_taken_for_crashed,
        Register, "_has_ended", "present.place == self._place", "True",
    ),
    "earlier life taken for the later": (
        tests.test_late_removal_of_an_earlier_process_spares_the_one_that_took_its_address,
        Members, "_take", 'life in ("", known.life)', "True",
    ),
    "roll applied to what follows it alone": (
        tests.test_roll_has_the_effect_of_the_entries_that_it_replaces,
        Members, "__init__", "upto, self.first = roll.upto,", "upto, self.first = roll.upto + 1,",
    ),
}  # fmt: skip

MUTANTS = [
    Mutant(rule, replaced(*change), exact(test), 1) for rule, (test, *change) in RULES.items()
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_register_without_this_rule_is_noticed(mutant: Mutant) -> None:
    """DDS-4"""
    must_be_noticed(mutant)
