"""Cut a history into the objects that it is about, and each into items that can be searched.

A topic and each of its subscriptions are objects of their own. An operation may be about several:
a look shows the end of the topic to the one, and a cursor to each of the others.

Commands are sent again until they are answered. So some things may have happened though the answer
says otherwise: a call that was refused, or found everything done already, may have done it itself
in an earlier attempt; and one that has no identity (create, delete, subscribe, unsubscribe, set a
policy, seek) may have been done once more, if others undid it while it was under way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from copy import copy
from math import inf
from typing import Any, NamedTuple, Self
from typing import Protocol as Interface

from oncecast.history.operation import NO_SUCH_TOPIC, NOT_SUBSCRIBED, History, Operation
from oncecast.history.search import Item, Model

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
UNDONE_BY = {
    "create": ("delete", "unsubscribe"),
    "subscribe": ("delete", "unsubscribe"),
    "delete": ("create", "subscribe", "put", "publish"),
    "unsubscribe": ("subscribe", "create"),
    "policy": ("policy", "delete", "unsubscribe"),
    "seek": ("seek", "subscribe"),
}


class Told(Interface):
    def silent(self) -> Any:
        """Return the same without an answer."""


def command_items(
    operation: Operation, told: Told, operations: Iterable[Operation], *, loose: bool
) -> list[Item]:
    """A command that may be done twice: as it was told, or once more while it is under way."""
    if operation.refused and operation.kind not in ("create", "policy"):
        return []
    rank = RANKS.index(operation.kind)
    silent = told.silent()
    if loose:
        return [Item(silent, -inf, must=False, often=True, rank=rank, guess=True)]
    call, due = operation.call, due_of(operation)
    items = [Item(told, call, due)] if operation.done else []
    # One that finds everything done may have done it, in an attempt whose answer was lost.
    maybe = not operation.done or operation.already
    if maybe or any(undoes(each, operation) for each in operations):
        items.append(Item(silent, call, due, must=False, often=True, rank=rank, guess=True))
    return items


def undoes(other: Operation, operation: Operation) -> bool:
    """Return whether `other` may have been done while `operation` was under way."""
    if other is operation or other.kind not in UNDONE_BY[operation.kind]:
        return False
    return other.call <= due_of(operation) and operation.call <= due_of(other)


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
