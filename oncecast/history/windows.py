"""Narrows the times of a topic's items, because answers show the order of many items.

Epochs follow each other, and the log only grows within an epoch. An answer from an earlier epoch,
or with a shorter log, therefore comes before one from a later epoch, or with a longer log. The
first item is due no later than the second, and the second is called no earlier than the first.

Some items cannot happen while a certain epoch lasts, so they come before or after all items of that
epoch. An answer that does not name its epoch gets the epoch that must have lasted at the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple

from oncecast.history.operation import NO_SUCH_TOPIC, Operation, cut
from oncecast.history.search import Item, Stage
from oncecast.history.topic_model import LAST, NOT_SHOWN, Effect, Shown

PUTS = ("put", "publish")
OBSERVERS = ("look", "scan", "attach", "seek")
# Kinds of operations whose epoch the model compares.
NEED_EPOCH = (*PUTS, *OBSERVERS, "subscribe", "create")
PASSES = 2  # number of passes; the findings of the first pass narrow the items of the second


class Span(NamedTuple):
    """An epoch that has begun by `begun`, and lasts at least until `lasts`."""

    epoch: int
    begun: float
    lasts: float


class Windows:
    """The times of a topic's items."""

    def __init__(self, items: Sequence[Item], shown: dict[int, Shown]) -> None:
        self._items, self._shown = items, shown
        self._calls = [item.call for item in items]
        self._dues = [item.due for item in items]
        self._lasts = [item.last for item in items]
        self._firm: dict[int, list[int]] = {}  # the items that an epoch must have, by epoch
        self._gets: dict[int, list[int]] = {}
        self._outside: list[int] = []  # the items that cannot happen in every epoch
        chains: dict[Hashable, list[int]] = {}
        for at, item in enumerate(items):
            if item.chain is not None:
                chains.setdefault(item.chain, []).append(at)
            if item.must:
                self._sort_in(at, item)
        self._chains = [sorted(chain, key=self._calls.__getitem__) for chain in chains.values()]

    def _sort_in(self, at: int, item: Item) -> None:
        operation, epoch = item.effect.operation, item.effect.epoch
        if is_outside_some_epochs(item):
            self._outside.append(at)
        elif operation.kind == "get" and epoch:
            self._gets.setdefault(epoch, []).append(at)
        elif operation.kind in NEED_EPOCH and epoch and not operation.error:
            self._firm.setdefault(epoch, []).append(at)
            self._lasts[at] = item.stage or (epoch, LAST)

    def narrow(self) -> list[Item]:
        """Return the items with narrower times. The possible orders stay the same."""
        for _ in range(PASSES):
            for epoch in self._firm:
                self._narrow_by_offset(epoch)
            self._narrow_by_epoch()
            self._narrow_outside()
            for chain in self._chains:
                self._narrow_chain(chain)
        narrow = zip(self._items, self._calls, self._dues, self._lasts, strict=True)
        return [
            item
            if (call, due, last) == (item.call, item.due, item.last)
            else item._replace(call=call, due=due, last=last)
            for item, call, due, last in narrow
        ]

    def spans(self) -> list[Span]:
        found = []
        for epoch, firm in sorted(self._firm.items()):
            begun = min(self._dues[at] for at in (*firm, *self._gets.get(epoch, ())))
            found.append(Span(epoch, begun, max(self._calls[at] for at in firm)))
        return found

    def _narrow_by_offset(self, epoch: int) -> None:
        """Order those items of an epoch that show the length of the log."""
        staged = [at for at in self._firm[epoch] if self._items[at].stage is not None]
        positions = sorted((position_of(self._items[at]), at) for at in staged)
        gets = [(reach_of(self._items[at]), self._dues[at]) for at in self._gets.get(epoch, ())]
        gets.sort()
        due, behind, previous = inf, inf, -1
        for position, at in reversed(positions):
            if position != previous:
                due, previous = min(due, behind), position
            while gets and gets[-1][0] > position:
                due = min(due, gets.pop()[1])
            self._dues[at] = min(self._dues[at], due)
            behind = min(behind, self._dues[at])
        call, before, previous = -inf, -inf, -1
        for position, at in positions:
            if position != previous:
                call, previous = before, position
            self._calls[at] = max(self._calls[at], call)
            before = max(before, self._calls[at])

    def _narrow_by_epoch(self) -> None:
        due, call = inf, -inf
        for epoch in sorted({*self._firm, *self._gets}, reverse=True):
            firm = self._firm.get(epoch, [])
            for at in firm:
                self._dues[at] = min(self._dues[at], due)
            due = min([due, *(self._dues[at] for at in (*firm, *self._gets.get(epoch, [])))])
        for epoch in sorted(self._firm):
            for at in self._firm[epoch]:
                self._calls[at] = max(self._calls[at], call)
            call = max(self._calls[at] for at in self._firm[epoch])

    def _narrow_outside(self) -> None:
        for epoch, begun, lasts in self.spans():
            for at in self._outside:
                if not self._is_outside(self._items[at].effect, epoch):
                    continue
                if self._dues[at] < lasts:
                    self._dues[at] = min(self._dues[at], begun)
                    self._lasts[at] = min(self._lasts[at] or (epoch, -1), (epoch, -1))
                if self._calls[at] > begun:
                    self._calls[at] = max(self._calls[at], lasts)

    def _is_outside(self, effect: Effect, epoch: int) -> bool:
        """Return whether the item cannot happen between two items of the epoch."""
        if effect.operation.kind == "publish":
            return self._shown[epoch].contradicts(effect.offset, effect.digests)
        return True  # the topic is absent before or after the item

    def _narrow_chain(self, chain: list[int]) -> None:
        call, due = -inf, inf
        for at in chain:
            self._calls[at] = call = max(call, self._calls[at])
        for at in reversed(chain):
            if self._items[at].must:
                self._dues[at] = due = min(due, self._dues[at])


def is_outside_some_epochs(item: Item) -> bool:
    operation: Operation = item.effect.operation
    if operation.kind == "publish":
        return lacks_epoch(item)
    return operation.kind == "delete" or operation.error == NO_SUCH_TOPIC


def position_of(item: Item) -> int:
    """Return a number that grows along the log. Answers that show a log precede the next put."""
    assert item.stage is not None
    effect: Effect = item.effect
    return 2 * item.stage[1] + (effect.operation.kind in PUTS and bool(effect.digests))


def reach_of(item: Item) -> int:
    """Return the position that follows every put that a delivery shows."""
    effect: Effect = item.effect
    return 2 * end_of(effect)


def end_of(effect: Effect) -> int:
    """Return the minimum length of the log that an answer shows, or -1 if it shows none."""
    operation = effect.operation
    if operation.kind in PUTS:
        return effect.offset
    return max(operation.next, operation.offset + operation.messages)


# -- answers that do not name their epoch --


def lacks_epoch(item: Item) -> bool:
    """Return whether the item has an offset, but no answer names its epoch."""
    effect: Effect = item.effect
    if not item.must or effect.epoch or effect.operation.error:
        return False
    return end_of(effect) >= 0


def with_epochs(items: Sequence[Item], shown: dict[int, Shown], spans: list[Span]) -> list[Item]:
    """Return the items, with an epoch where it is certain."""
    puts = {id(each.effect.operation): each.effect.digests for each in items}
    count = Counter(digest for digests in puts.values() for digest in cut(digests))
    found = []
    for item in items:
        if lacks_epoch(item) and item.effect.operation.kind in ("publish", *OBSERVERS):
            for span in spans:
                if is_within(item, span) or is_shown(item.effect, shown[span.epoch], count):
                    item = with_epoch(item, span.epoch)
                    break
        found.append(item)
    return found


def is_within(item: Item, span: Span) -> bool:
    """Return whether the epoch certainly includes the time of the item."""
    return span.begun < item.call and item.due < span.lasts


def is_shown(effect: Effect, shown: Shown, count: Counter[bytes]) -> bool:
    """Return whether an answer shows a message that only this publish contains."""
    if effect.operation.kind != "publish":
        return False
    return any(
        count[digest] == 1 and shown.seen.has(offset, digest)
        for offset, digest in enumerate(cut(effect.digests), effect.offset)
    )


def with_epoch(item: Item, epoch: int) -> Item:
    effect: Effect = item.effect
    publish = effect.operation.kind == "publish"
    stage: Stage | None = (epoch, effect.offset) if publish else item.stage
    return item._replace(effect=effect._replace(epoch=epoch), stage=stage)


def limited(
    items: Sequence[Item], shown: dict[int, Shown], spans: list[Span]
) -> list[tuple[int, int]]:
    """Limit the logs to the length that answers can show.

    For each named epoch, return the limit of the unnamed epochs that may follow it.
    """
    unnamed = [item for item in items if lacks_epoch(item)]
    anywhere = max((end_of(item.effect) for item in unnamed), default=0)
    lasts = list(accumulate((span.lasts for span in spans), max, initial=-inf))
    begins = list(accumulate((span.begun for span in reversed(spans)), min, initial=inf))[::-1]
    for each in shown.values():
        each.most = max(each.end, anywhere)
    for at, (epoch, _, _) in enumerate(spans):
        there = shown[epoch]
        ends = list(ends_between(unnamed, lasts[at], begins[at + 1], there))
        there.most = max(there.end, *(end for _, end in ends), 0)
        there.publish = max((end for kind, end in ends if kind == "publish"), default=0)
    gaps = zip((0, *(span.epoch for span in spans)), lasts, begins, strict=True)
    return [
        (epoch, max((end for _, end in ends_between(unnamed, last, begun, NOT_SHOWN)), default=0))
        for epoch, last, begun in gaps
    ]


def ends_between(
    unnamed: list[Item], lasts: float, begun: float, shown: Shown
) -> Iterator[tuple[str, int]]:
    """Yield the kind and end of each item that may happen between `lasts` and `begun`."""
    for item in unnamed:
        effect: Effect = item.effect
        kind = effect.operation.kind
        # Deliveries may arrive after the epoch has ended.
        call = -inf if kind == "get" else item.call
        if lasts > item.due or call > begun:
            continue
        if kind == "publish" and shown.contradicts(effect.offset, effect.digests):
            continue
        yield kind, end_of(effect)
