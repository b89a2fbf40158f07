"""Turns the operations on one subscription into items for a search."""

from __future__ import annotations

from math import inf

from msgspec.structs import replace as replaced

from oncecast.errors import Overloaded
from oncecast.history import subscription_model
from oncecast.history.operation import History, Operation
from oncecast.history.partition import (
    NONE,
    Part,
    Problem,
    absent,
    command_items,
    due_of,
)
from oncecast.history.search import Item
from oncecast.history.subscription_model import Move, SubscriptionModel
from oncecast.wire.commands import FromEarliest, FromOffset

ABOUT_ALL = ("delete", "look", "scan")


class SubscriptionPart(Part):
    """Selects the operations of a topic that concern one subscription.

    From time `drops` on, the topic may drop unread messages.
    """

    def __init__(self, topic: str, name: str, operations: History, drops: float = inf) -> None:
        about = [each for each in operations if each.subscription == name or each.kind in ABOUT_ALL]
        super().__init__(f"subscription {name!r} of topic {topic!r}", about)
        self._subscription = name
        self._own = [each for each in about if each.subscription == name]
        self._drops = drops
        self._beginners = [each for each in self._own if each.kind in ("attach", "seek")]
        silent = [each.call for each in self._beginners if not each.done]
        # The time of the first attach or seek that got no answer.
        self._silent = min(silent, default=inf)
        self._acks = acks_since(self._own)

    def problem(self, loose: frozenset[int] = NONE, *, narrow: bool = True) -> Problem:
        seeks = [each for each in self._beginners if each.kind == "seek" and each.done]
        model = SubscriptionModel({each.epoch for each in seeks})
        for each in self._own:
            if each.kind in ("ack", "leave"):
                model.acknowledged(each.epoch, each.upto, each.call)
            elif each.kind == "attach" and each.done:  # the reader has read all earlier messages
                model.acknowledged(each.epoch, each.offset, each.call)
        items: list[Item] = []
        for each in self.operations:
            items += self._pending(each, self._items(each, model, loose=id(each) in loose))
        return Problem(items, subscription_model.ABSENT, model)

    def _items(self, operation: Operation, model: SubscriptionModel, *, loose: bool) -> list[Item]:
        call, due = operation.call, due_of(operation)
        move = Move(operation, unknown=self._silent <= due)
        match operation.kind:
            case "attach":
                return self._attach_items(operation, move, loose=loose)
            case "seek":
                return self._seek_items(operation, move, loose=loose)
            case "moved":
                if operation.epoch not in model.sought:
                    call = min(self._silent, due)
                return [] if loose else [Item(move, call, due, reads=True)]
            case "ack" | "leave":
                if loose or not confirmed(operation):
                    return []
                return [Item(move, self._acks[id(operation)], due, reads=True)]
            case "subscribe" | "unsubscribe" | "delete":
                return command_items(operation, move, loose=loose)
            case "look" | "scan":
                return [] if loose else self._look_items(operation)
            case _:
                return []

    def _attach_items(self, attach: Operation, move: Move, *, loose: bool) -> list[Item]:
        if loose and attach.done:
            return [Item(move._replace(answered=False), -inf, must=False, often=True, guess=True)]
        if not loose and (attach.done or absent(attach)):
            due = due_of(attach)
            if self._drops > due and lands_first(attach):
                move = move._replace(first=attach.offset)
            return [Item(move, attach.call, due)]
        if attach.start is None:
            return []
        seek = Move(replaced(attach, kind="seek", error=""), answered=False)
        return [Item(seek, attach.call, must=False, guess=True)]

    def _seek_items(self, seek: Operation, move: Move, *, loose: bool) -> list[Item]:
        silent = Move(replaced(seek, error=""), answered=False)
        if loose:
            return [Item(silent, -inf, must=False, often=True, guess=True)]
        due = due_of(seek)
        if self._drops > due and lands_first(seek):
            move = move._replace(first=seek.offset)
        if seek.done or absent(seek):
            return [Item(move, seek.call, due)]
        if seek.error == Overloaded.code:
            due = inf  # a copy may still be in flight
        return [Item(silent, seek.call, due, must=False, guess=True)]

    def _look_items(self, look: Operation) -> list[Item]:
        if not (look.done or absent(look)):
            return []
        due = due_of(look)
        first = look.first if self._drops > due else -1
        move = Move(look, first=first, unknown=self._unknown_at(look))
        if look.views is not None:
            views = [view for view in look.views if view.name == self._subscription]
            move = move._replace(seen=bool(views))
            if views:
                move = move._replace(cursor=views[0].cursor, epoch=views[0].epoch)
        elif look.done and first <= 0:
            return []
        return [Item(move, look.call, due, reads=True)]

    def _unknown_at(self, look: Operation) -> bool:
        """Return whether the look may show an epoch that no client knows of."""
        return any(
            each.call <= due_of(look) and (not each.done or look.call <= due_of(each))
            for each in self._beginners
        )


def acks_since(own: History) -> dict[int, float]:
    """Return the earliest possible time of each ack, by ack id.

    A node may confirm an ack because of an earlier ack from the same reader.
    """
    found: dict[int, float] = {}
    by_reader: dict[tuple[str, int], History] = {}
    for each in own:
        if each.kind in ("ack", "leave"):
            by_reader.setdefault((each.reader, each.epoch), []).append(each)
    for acks in by_reader.values():
        earliest = inf
        for each in sorted(acks, key=lambda ack: (-ack.upto, ack.call)):
            earliest = min(earliest, each.call)
            found[id(each)] = earliest
    return found


def lands_first(move: Operation) -> bool:
    """Return whether the answer to a seek or an attach shows the first kept offset."""
    if not move.done:
        return False
    start = move.start
    before = isinstance(start, FromOffset) and start.offset < move.offset
    return before or isinstance(start, FromEarliest)


def confirmed(ack: Operation) -> bool:
    return ack.done and (ack.kind == "leave" or ack.offset >= ack.upto)


def drops_from(operations: History) -> float:
    """Return the time from which the topic's policy may drop unread messages."""
    dropping = (each for each in operations if each.policy is not None and each.policy.drop_unread)
    return min((each.call for each in dropping), default=inf)
