"""Find the few operations of a history that cannot be put into any order, whatever the others did.

To leave out an operation means to know nothing of it: it may have happened at any time or never,
with any answer. That only makes an order easier to find. So if there is none even so, the
operations that are left contradict each other. Mostly the last few do. Of those, halves are left
out first, then quarters, and so on down to single ones, as in delta debugging (Zeller and
Hildebrandt, TSE 2002).
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from oncecast.history.operation import History, Operation, cut
from oncecast.history.partition import NOBODY, Part, Problem, due_of
from oncecast.history.search import Found, Outcome, search

STEPS_MAX = 100_000  # of one attempt
TOTAL_STEPS_MAX = 10_000_000
FEW = 16


class Blame(NamedTuple):
    """Operations that contradict each other, and how: see `search.Found`."""

    operations: History
    problem: Problem
    found: Found


def blame(part: Part, until: float) -> Blame:
    """Return the operations to blame, by the time of their calls.

    What was called after `until` was not needed to find the contradiction, so what was called after
    the answers that were is of no account.
    """
    dues = [due_of(each) for each in part.operations if each.call <= until]
    early = Minimiser(part.until(max((due for due in dues if due < inf), default=until)))
    return early.run() if early.impossible(NOBODY) else Minimiser(part).run()


class Minimiser:
    def __init__(self, part: Part) -> None:
        self._part = part
        self._steps = 0

    def run(self) -> Blame:
        told, loose = self._last_few()
        size, before = len(told), 0
        while size > 1 or before != len(told):
            before, size = len(told), max(1, size // 2)
            told, loose = self._without_some(told, loose, size)
        problem = self._part.problem(loose)
        found = search(problem.items, problem.initial, problem.model, steps_max=STEPS_MAX)
        operations = sorted([*told, *self._involved(told)], key=lambda each: each.call)
        return Blame(operations, problem, found)

    def _last_few(self) -> tuple[History, frozenset[int]]:
        """The operations that returned last, as few of them as contradict each other."""
        told = sorted(self._part.told(), key=due_of)
        few = FEW
        while few < len(told):
            loose = frozenset(id(each) for each in told[:-few])
            if self.impossible(loose):
                return sorted(told[-few:], key=lambda each: each.call), loose
            few *= 4
        return sorted(told, key=lambda each: each.call), NOBODY

    def _without_some(
        self, told: History, loose: frozenset[int], size: int
    ) -> tuple[History, frozenset[int]]:
        """Leave out as many runs of `size` operations as possible."""
        kept: History = []
        for at in range(0, len(told), size):
            some = told[at : at + size]
            more = loose | {id(each) for each in some}
            if self.impossible(more):
                loose = more
            else:
                kept += some
        return kept, loose

    def impossible(self, loose: frozenset[int]) -> bool:
        if self._steps > TOTAL_STEPS_MAX:
            return False
        problem = self._part.problem(loose)
        found = search(problem.items, problem.initial, problem.model, steps_max=STEPS_MAX)
        self._steps += found.steps + len(problem.items)
        return found.outcome is Outcome.IMPOSSIBLE

    def _involved(self, told: History) -> list[Operation]:
        """Puts without an answer whose messages somebody was given."""
        seen = {digest for each in told if each.kind != "put" for digest in cut(each.digests)}
        return [
            each
            for each in self._part.operations
            if each.kind == "put" and each.returned is None and seen.intersection(cut(each.digests))
        ]
