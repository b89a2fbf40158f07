"""Check that removing any register rule makes a test fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncecast.coordination.register import Members, Register
from tests.coordination import test_register as tests
from tests.coordination.register_storm import storm
from tests.mutants import Mutant, assert_detected, exact, replaced

pytestmark = pytest.mark.mutants

RULES: dict[str, tuple[Callable[..., None], Any, str, str, str]] = {
    "entries are dropped after a process signs out": (
        tests.test_register_topic_is_empty_after_all_processes_sign_out,
        Register, "sign_out", "await self._shorten()", "pass",
    ),
    "a crashed process is removed": (
        tests.test_crashed_process_on_this_machine_is_removed,
        Register, "sign_in", "await self._remove_ended(me, founders)", "pass",
    ),
    "a refused connection from another machine proves nothing": (
        tests.test_founder_on_another_machine_is_never_removed,
        Register, "_has_ended", "present.network == self._network", "True",
    ),
    "a late removal of an earlier incarnation is ignored": (
        tests.test_late_removal_keeps_the_next_process_at_the_same_address,
        Members, "_apply", 'incarnation in ("", known.incarnation)', "True",
    ),
    "a roll replaces only the entries before it": (
        tests.test_roll_has_the_same_effect_as_the_entries_it_replaces,
        Members, "__init__", "upto, self.first = roll.upto,", "upto, self.first = roll.upto + 1,",
    ),
}  # fmt: skip

OLD_ROLL = "a roll is ignored if later entries were dropped"

MUTANTS = [
    Mutant(rule, replaced(*change), exact(test), 1) for rule, (test, *change) in RULES.items()
] + [
    Mutant(
        OLD_ROLL, replaced(Members, "__init__", "if roll.upto >= needed", "if True"), storm, 300,
        known=(220,),
    ),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_register_mutant_is_detected(mutant: Mutant) -> None:
    """DDS-4"""
    assert_detected(mutant)
