"""Divides a history into objects, and each object into items for a search.

A topic and each of its subscriptions are objects. An operation may concern several of them. For
example, a look shows the end of a topic and the cursor of each subscription.

A client resends a command until it is answered. All copies of a call have one token, so at most one
of them has an effect. If the answer is "already", an earlier copy may have had the effect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from math import inf
from typing import Any, NamedTuple, Self
from typing import Protocol as Interface

from oncecast.errors import Overloaded
from oncecast.history.operation import NO_SUCH_TOPIC, NOT_SUBSCRIBED, History, Operation
from oncecast.history.search import Item, Model

NONE: frozenset[int] = frozenset()


class Problem(NamedTuple):
    """A search problem: find an order of these items that the model allows."""

    items: list[Item]
    initial: Any
    model: Model


class Part(ABC):
    """One object of a history, with the operations on it."""

    def __init__(self, name: str, operations: History) -> None:
        self.name, self.operations = name, operations
        self._end = inf

    def until(self, time: float) -> Self:
        """Return the part as it was at `time`.

        Omit later calls. Calls that had not returned by then may still happen.
        """
        part = copy(self)
        part._end = time
        part.operations = [each for each in self.operations if each.call <= time]
        return part

    def answered(self) -> History:
        """Return the operations that had returned by the end of the part."""
        returned = [each for each in self.operations if each.returned is not None]
        return [each for each in returned if due_of(each) <= self._end]

    def _pending(self, operation: Operation, items: list[Item]) -> list[Item]:
        """Make items optional if their operation had not returned by the end of the part."""
        if due_of(operation) <= self._end:
            return items
        return [item._replace(must=False, due=inf) for item in items if not item.reads]

    @abstractmethod
    def problem(self, loose: frozenset[int] = NONE, *, narrow: bool = True) -> Problem:
        """Return the search problem. With `narrow`, use all answers to order the items.

        An operation whose `id` is in `loose` may have happened at any time or never, with any
        answer. If there is still no order, the remaining operations contradict each other.
        """


def by_topic(history: History) -> dict[str, History]:
    found: dict[str, History] = {}
    for operation in history:
        found.setdefault(operation.topic, []).append(operation)
    return found


# -- commands --

RANKS = ("subscribe", "create", "policy", "unsubscribe", "delete")  # try destructive ones last


class Answerable(Interface):
    def silent(self) -> Any:
        """Return the same effect without an answer."""


def command_items(operation: Operation, effect: Answerable, *, loose: bool) -> list[Item]:
    """Return the items of a command that happens once, or never if it is refused."""
    if operation.refused and operation.error != Overloaded.code:
        return []
    silent = effect.silent()
    maybe = Item(silent, operation.call, must=False, rank=RANKS.index(operation.kind), guess=True)
    if loose:
        return [maybe._replace(call=-inf, often=True)]
    if not operation.done:  # a copy may still be in flight, even after an overload
        # Equal commands without an answer are interchangeable.
        return [maybe._replace(like=(operation.kind, operation.subscription, operation.policy))]
    due = due_of(operation)
    answered = Item(effect, operation.call, due)
    # If the answer is "already", an earlier copy may have had the effect.
    return [answered, maybe._replace(due=due)] if operation.already else [answered]


# -- times and answers --


def due_of(operation: Operation) -> float:
    return inf if operation.returned is None else operation.returned


def absent(operation: Operation) -> bool:
    """Return whether a node, and not the session, answered that the object does not exist."""
    if operation.error not in (NO_SUCH_TOPIC, NOT_SUBSCRIBED):
        return False
    return operation.kind in ("look", "scan", "attach") or (
        operation.kind == "seek" and not operation.reader
    )
