"""A dict of topics that lists names in order and counts all subscriptions and producers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Any

from oncecast.broker.topic import Topic
from oncecast.broker.totals import Total

FEW = 64  # maximum number of new names that are inserted one by one; more names are sorted together
STALE_MAX = 1000  # maximum number of removed names in the list, in addition to one per topic


class Topics(dict[str, Topic]):
    """A dict in creation order, which also lists its names in alphabetical order.

    The creation order is part of the machine's state. The sorted list serves only queries. Reading
    it adds new names and skips removed ones.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sorted: list[str] = []
        self._added: list[str] = []

        self.subscriptions, self.producers = Total(), Total()  # totals over all topics

    def __setitem__(self, name: str, topic: Topic) -> None:
        if name in self:
            self._uncount(self[name])
        else:
            self._added.append(name)
        super().__setitem__(name, topic)
        topic.subscriptions.count_in(self.subscriptions)
        topic.producers.count_in(self.producers)

    def __delitem__(self, name: str) -> None:
        self.pop(name)

    def pop(self, name: str, *default: Any) -> Any:
        if name in self:
            self._uncount(self[name])
        return super().pop(name, *default)

    def clear(self) -> None:
        for topic in self.values():
            self._uncount(topic)
        super().clear()

    def _uncount(self, topic: Topic) -> None:
        topic.subscriptions.count_out(self.subscriptions)
        topic.producers.count_out(self.producers)

    def update(self, *topics: Any, **named: Any) -> None:
        raise NotImplementedError("assign topics one by one")

    def setdefault(self, name: str, topic: Topic | None = None) -> Any:
        raise NotImplementedError("assign topics one by one")

    def names(self, prefix: str, after: str) -> Iterator[str]:
        """Yield the names with `prefix` that come after `after`, in order."""
        self._sort()
        names = self._sorted
        at = max(bisect_left(names, prefix), bisect_right(names, after))
        last = ""
        while at < len(names) and names[at].startswith(prefix):
            name = names[at]
            at += 1
            if name != last and name in self:  # a name that was added again appears twice
                last = name
                yield name

    def _sort(self) -> None:
        added, self._added = self._added, []
        if len(self._sorted) + len(added) > 2 * len(self) + STALE_MAX:
            self._sorted = sorted(self)
        elif len(added) <= FEW:
            for name in added:
                insort(self._sorted, name)
        else:
            self._sorted += added
            self._sorted.sort()
