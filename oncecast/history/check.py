"""`check(history)` checks whether the operations on each topic and subscription are linearizable.

The verdict is `ok` only if all of them are. If a search reaches its limit, the verdict is
`undecided`, which counts as a failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from oncecast.history.finding import Finding
from oncecast.history.minimise import Blame, blame
from oncecast.history.operation import History
from oncecast.history.partition import Part, by_topic
from oncecast.history.readers import reader_findings
from oncecast.history.reasons import reason
from oncecast.history.search import STEPS_MAX, Outcome, search
from oncecast.history.subscription_part import SubscriptionPart, drops_from
from oncecast.history.topic_part import TopicPart


class Verdict(NamedTuple):
    operations: int
    objects: int  # number of topics and subscriptions
    steps: int
    broken: list[Finding]
    undecided: list[Finding]

    @property
    def ok(self) -> bool:
        return not self.broken and not self.undecided

    def __str__(self) -> str:
        if self.ok:
            return (
                f"{self.operations} operations on {self.objects} topics and subscriptions "
                "are linearizable"
            )
        return "\n".join(map(str, (*self.broken, *self.undecided)))


def check(history: History, *, steps_max: int = STEPS_MAX) -> Verdict:
    """Check the merged history of all clients (see `file.merged`) and return the verdict."""
    verdict = Verdict(len(history), 0, 0, [], [])
    for topic, operations in sorted(by_topic(history).items()):
        operations.sort(key=lambda each: each.call)
        verdict.broken.extend(reader_findings(topic, operations))
        for part in parts(topic, operations):
            verdict = checked(verdict, part, steps_max)
    return verdict


def parts(topic: str, operations: History) -> Iterator[Part]:
    yield TopicPart(topic, operations)
    drops = drops_from(operations)
    for name in dict.fromkeys(each.subscription for each in operations if each.subscription):
        yield SubscriptionPart(topic, name, operations, drops)


def checked(verdict: Verdict, part: Part, steps_max: int) -> Verdict:
    problem = part.problem()
    found = search(problem.items, problem.initial, problem.model, steps_max=steps_max)
    if found.outcome is Outcome.UNDECIDED:
        why = f"UNDECIDED: the search gave up after {found.steps} steps, so nothing is proven"
        verdict.undecided.append(Finding(part.name, why, []))
    elif found.outcome is Outcome.IMPOSSIBLE:
        blamed = blame(part, found.until)
        left_out = len(part.operations) - len(blamed.operations)
        finding = Finding(part.name, explained(blamed), blamed.operations, left_out)
        verdict.broken.append(finding)
    return verdict._replace(objects=verdict.objects + 1, steps=verdict.steps + found.steps)


def explained(blamed: Blame) -> str:
    """Explain why none of the operations that had to come next was possible."""
    state, stuck = blamed.found.state, [item.effect for item in blamed.found.stuck if item.must]
    whys = [
        f"{each.operation.kind} of {each.operation.client}: {reason(state, each)}" for each in stuck
    ]
    return "not linearizable: " + "; ".join(whys or ["no order is possible"])
