"""Counts of all topics that a user may see, and the rates at which they grow.

Listing 10,000 topics costs the node some tens of milliseconds. So all requests of a session share a
count. A count is made again after two seconds, or after twenty times the time that it took.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from oncecast.client.topics import PAGE

if TYPE_CHECKING:
    from oncecast.client.client import Client
    from oncecast.web.backend import Backend
    from oncecast.wire.frames import TopicView

AGE_MIN = 2.0  # seconds for which a count is used
COST = 20  # a count is used for this many times the time that it took
RATE_MIN = 1.0  # minimum seconds between two counts that give a rate


class Count:
    """The topics at one time, and how far each had grown since the count before."""

    def __init__(self, topics: dict[str, TopicView], at: float, took: float, whole: bool) -> None:
        self.topics, self.at, self.took, self.whole = topics, at, took, whole
        self.messages = sum(each.next - each.first for each in topics.values())
        self.bytes = sum(each.bytes for each in topics.values())
        self.rates: dict[str, float] = {}
        self.bytes_rate: float | None = None

    @property
    def subscriptions(self) -> int | None:
        """Return the number of subscriptions, or None if they were not counted."""
        if not self.whole:
            return None
        return sum(len(each.subscriptions) for each in self.topics.values())

    @property
    def puts_rate(self) -> float | None:
        return sum(self.rates.values()) if self.bytes_rate is not None else None

    def compare(self, earlier: Count) -> None:
        """Compute the rates since an earlier count."""
        seconds = self.at - earlier.at
        grown = 0.0
        for name, each in self.topics.items():
            before = earlier.topics.get(name)
            start = before.next if before is not None and before.id == each.id else each.first
            new = max(0, each.next - start)
            self.rates[name] = new / seconds
            grown += new * each.bytes / max(1, each.next - each.first)
        self.bytes_rate = grown / seconds


class Census:
    def __init__(self, client: Client, backend: Backend) -> None:
        self._client, self._backend = client, backend
        self._last: Count | None = None
        self._outdated = False
        self._counting: asyncio.Task[Count] | None = None

    @property
    def last(self) -> Count | None:
        return self._last

    def forget(self) -> None:
        """Count again at the next request, because this user has changed a topic."""
        self._outdated = True

    async def count(self) -> Count:
        """Return a recent count."""
        now = asyncio.get_running_loop().time()
        last = self._last
        fresh = last is not None and now - last.at < max(AGE_MIN, COST * last.took)
        if last is not None and fresh and not self._outdated:
            return last
        if self._counting is None:
            self._outdated = False
            self._counting = asyncio.create_task(self._count(now))
            self._counting.add_done_callback(self._counted)
        return await asyncio.shield(self._counting)

    async def _count(self, began: float) -> Count:
        topics: dict[str, TopicView] = {}
        ring = bool((await self._client.ring()).processes)
        if ring:
            topics = {each.name: each async for each in self._client.topics()}
        else:
            after, more = "", True
            while more:
                view = await self._backend.topics(after=after, limit=PAGE)
                topics.update((each.name, each) for each in view.topics)
                after = view.topics[-1].name if view.topics else ""
                more = view.more and bool(after)
        now = asyncio.get_running_loop().time()
        return Count(topics, now, now - began, ring)

    def _counted(self, task: asyncio.Task[Count]) -> None:
        self._counting = None
        if task.cancelled() or task.exception() is not None:
            return
        count, last = task.result(), self._last
        if last is not None and count.at - last.at >= RATE_MIN:
            count.compare(last)
        elif last is not None:
            count.rates, count.bytes_rate = last.rates, last.bytes_rate
        self._last = count
