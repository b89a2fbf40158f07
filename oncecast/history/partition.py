"""Cut a history into the objects that it is about, and each into items that can be searched.

A topic and each of its subscriptions are objects of their own. An operation may be about several:
a look shows the end of the topic to the one, and a cursor to each of the others.

Commands are sent again until they are answered. All copies of a call have one token, so at most one
of them changes anything. A call whose answer is "already" may have been done by an earlier copy of
itself. A seek has an effect once more if another seek, or a new subscription, came between two
copies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from math import inf
from typing import Any, NamedTuple, Self
from typing import Protocol as Interface

from oncecast.history.operation import NO_SUCH_TOPIC, NOT_SUBSCRIBED, History, Operation
from oncecast.history.search import Item, Model
from oncecast.wire.errors import Overloaded

NOBODY: frozenset[int] = frozenset()


class Problem(NamedTuple):
    """Is there an order of these items?"""

    items: list[Item]
    initial: Any
    model: Model


class Part(ABC):
    """One object of a history, with the operations on it."""

    def __init__(self, name: str, operations: History) -> None:
        self.name, self.operations = name, operations
        self._end = inf

    def until(self, time: float) -> Self:
        """Return the same, as it was at that time: later calls are gone, and what had not returned
        may still be to come."""
        part = copy(self)
        part._end = time
        part.operations = [each for each in self.operations if each.call <= time]
        return part

    def told(self) -> History:
        """Return the operations that had returned by then."""
        returned = [each for each in self.operations if each.returned is not None]
        return [each for each in returned if due_of(each) <= self._end]

    def _pending(self, operation: Operation, items: list[Item]) -> list[Item]:
        """Let what had not returned by then be left out."""
        if due_of(operation) <= self._end:
            return items
        return [item._replace(must=False, due=inf) for item in items if not item.reads]

    @abstractmethod
    def problem(self, loose: frozenset[int] = NOBODY) -> Problem:
        """Return what has to be solved.

        Of the operations whose `id` is in `loose` nothing is known but what they asked for: they
        may have happened at any time, or not, with any answer. If there is no order even so, the
        others are to blame.
        """


def by_topic(history: History) -> dict[str, History]:
    found: dict[str, History] = {}
    for operation in history:
        found.setdefault(operation.topic, []).append(operation)
    return found


# -- commands --

RANKS = ("subscribe", "create", "policy", "unsubscribe", "delete")  # what ends most is tried last


class Told(Interface):
    def silent(self) -> Any:
        """Return the same without an answer."""


def command_items(operation: Operation, told: Told, *, loose: bool) -> list[Item]:
    """Return the items of a command that is done once, or not at all if it is refused."""
    if operation.refused and operation.error != Overloaded.code:
        return []
    silent = told.silent()
    maybe = Item(silent, operation.call, must=False, rank=RANKS.index(operation.kind), guess=True)
    if loose:
        return [maybe._replace(call=-inf, often=True)]
    if not operation.done:  # a copy may still be in the network, also if the node was overloaded
        return [maybe]
    due = due_of(operation)
    as_told = Item(told, operation.call, due)
    # If all was done already, an earlier copy may have done it.
    return [as_told, maybe._replace(due=due)] if operation.already else [as_told]


# -- times and answers --


def due_of(operation: Operation) -> float:
    return inf if operation.returned is None else operation.returned


def absent(operation: Operation) -> bool:
    """Return whether a node, and not the session, has said that there is no such thing."""
    if operation.error not in (NO_SUCH_TOPIC, NOT_SUBSCRIBED):
        return False
    return operation.kind in ("look", "scan", "attach") or (
        operation.kind == "seek" and not operation.reader
    )
