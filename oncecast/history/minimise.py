"""Finds a few operations of a history that contradict each other.

An omitted operation may have happened at any time or never, with any answer. That only makes an
order easier to find. If there is still no order, the remaining operations therefore contradict each
other. Usually the last few operations do. From these, the search omits halves, then quarters, down
to single operations, as in delta debugging (Zeller and Hildebrandt, TSE 2002).
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from oncecast.history.operation import History, Operation, cut
from oncecast.history.partition import NONE, Part, Problem, due_of
from oncecast.history.search import Found, Outcome, search

STEPS_MAX = 100_000  # maximum number of search steps per attempt
TOTAL_STEPS_MAX = 10_000_000
FEW = 16


class Blame(NamedTuple):
    """Operations that contradict each other, with the failed search (see `search.Found`)."""

    operations: History
    problem: Problem
    found: Found


def blame(part: Part, until: float) -> Blame:
    """Return the operations that contradict each other, ordered by the times of their calls.

    The search failed before it considered calls made after `until`. Calls made after the last
    answer that the search needed therefore do not matter.
    """
    dues = [due_of(each) for each in part.operations if each.call <= until]
    early = Minimiser(part.until(max((due for due in dues if due < inf), default=until)))
    return early.run() if early.impossible(NONE) else Minimiser(part).run()


class Minimiser:
    def __init__(self, part: Part) -> None:
        self._part = part
        self._steps = 0

    def run(self) -> Blame:
        answered, loose = self._last_few()
        size, before = len(answered), 0
        while size > 1 or before != len(answered):
            before, size = len(answered), max(1, size // 2)
            answered, loose = self._without_some(answered, loose, size)
        # The farthest point is more informative if the search does not know later answers.
        problem = self._part.problem(loose, narrow=False)
        found = search(problem.items, problem.initial, problem.model, steps_max=STEPS_MAX)
        operations = sorted([*answered, *self._involved(answered)], key=lambda each: each.call)
        return Blame(operations, problem, found)

    def _last_few(self) -> tuple[History, frozenset[int]]:
        """Return the smallest group of the latest operations that contradict each other."""
        answered = sorted(self._part.answered(), key=due_of)
        few = FEW
        while few < len(answered):
            loose = frozenset(id(each) for each in answered[:-few])
            if self.impossible(loose):
                return sorted(answered[-few:], key=lambda each: each.call), loose
            few *= 4
        return sorted(answered, key=lambda each: each.call), NONE

    def _without_some(
        self, answered: History, loose: frozenset[int], size: int
    ) -> tuple[History, frozenset[int]]:
        """Omit as many runs of `size` operations as possible."""
        kept: History = []
        for at in range(0, len(answered), size):
            some = answered[at : at + size]
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

    def _involved(self, answered: History) -> list[Operation]:
        """Return the unanswered puts whose messages were delivered to a client."""
        seen = {digest for each in answered if each.kind != "put" for digest in cut(each.digests)}
        return [
            each
            for each in self._part.operations
            if each.kind == "put" and each.returned is None and seen.intersection(cut(each.digests))
        ]
