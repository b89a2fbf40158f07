"""`check(history)`: can the operations of every topic and subscription be put into one order?

The verdict is `ok` only if all of them can. What the search could not decide within its limit is
`undecided`, and not ok.
"""

from __future__ import annotations

from typing import NamedTuple

from oncecast.history.operation import History
from oncecast.history.partition import Problem, by_topic, subscription_problems, topic_problem
from oncecast.history.search import STEPS_MAX, Found, Outcome, search


class Finding(NamedTuple):
    """Something that cannot be, and the operations that show it."""

    what: str  # which object
    why: str
    operations: History
    left_out: int = 0  # operations that make no difference


class Verdict(NamedTuple):
    operations: int
    objects: int  # topics and subscriptions
    steps: int
    broken: list[Finding]
    undecided: list[Finding]

    @property
    def ok(self) -> bool:
        return not self.broken and not self.undecided

    def __str__(self) -> str:
        if self.ok:
            return f"{self.operations} operations on {self.objects} objects are linearizable"
        lines: list[str] = []
        for finding in (*self.broken, *self.undecided):
            lines += (f"{finding.what}: {finding.why}", *map(str, finding.operations))
        return "\n".join(lines)


def check(history: History, *, steps_max: int = STEPS_MAX) -> Verdict:
    """Check the histories of all clients together; see `file.merged`."""
    verdict = Verdict(len(history), 0, 0, [], [])
    for topic, operations in sorted(by_topic(history).items()):
        for problem in (
            topic_problem(topic, operations),
            *subscription_problems(topic, operations),
        ):
            found = search(problem.items, problem.initial, problem.model, steps_max=steps_max)
            verdict = counted(verdict, problem, found)
    return verdict


def counted(verdict: Verdict, problem: Problem, found: Found) -> Verdict:
    verdict = verdict._replace(objects=verdict.objects + 1, steps=verdict.steps + found.steps)
    if found.outcome is not Outcome.LINEARIZABLE:
        stuck = [item.what.operation for item in found.stuck]
        finding = Finding(problem.name, found.outcome.value, stuck)
        undecided = found.outcome is Outcome.UNDECIDED
        (verdict.undecided if undecided else verdict.broken).append(finding)
    return verdict
