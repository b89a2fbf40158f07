"""Describe and list topics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from oncecast.client.arguments import check_topic
from oncecast.client.cluster import Cluster
from oncecast.errors import NoSuchTopic, NotConnected, TimedOut
from oncecast.wire.frames import ArcView, TopicView

PAGE = 1000  # maximum number of topics per request
TOGETHER = 16  # maximum number of groups of a ring to query concurrently

ListAt = Callable[[str, str], Awaitable[list[TopicView]]]  # takes an address and a prefix


class Topics:
    def __init__(self, cluster: Cluster, list_at: ListAt) -> None:
        self._cluster, self._list_at = cluster, list_at

    async def describe(self, topic: str) -> TopicView:
        check_topic(topic)
        view = await self._cluster.look(topic=topic)
        if not view.topics:
            raise NoSuchTopic(topic)
        return view.topics[0]

    async def all(self, prefix: str) -> AsyncIterator[TopicView]:
        """Yield all topics with this prefix, sorted by name. On a ring, include all groups."""
        if (await self._cluster.ring()).processes:
            for each in await self._of_ring(prefix):
                yield each
        else:
            async for each in self.of_group(prefix):
                yield each

    async def of_group(self, prefix: str) -> AsyncIterator[TopicView]:
        after, more = "", True
        while more:
            view = await self._cluster.look(prefix=prefix, after=after, limit=PAGE)
            for each in view.topics:
                yield each
                after = each.name
            more = view.more

    async def _of_ring(self, prefix: str) -> list[TopicView]:
        """Return the topics of all groups, sorted by name.

        Query each group twice. During the first round, a topic may move to a group that has already
        answered; the second round finds it there.
        """
        found: dict[str, TopicView] = {}
        for _ in range(2):
            owners = [arc for arc in (await self._cluster.ring()).groups if arc.low]
            for at in range(0, len(owners), TOGETHER):
                asked = [self._of_arc(arc, prefix) for arc in owners[at : at + TOGETHER]]
                for outcome in await asyncio.gather(*asked, return_exceptions=True):
                    if isinstance(outcome, BaseException):
                        raise outcome
                    found.update((each.name, each) for each in outcome)
        return [found[name] for name in sorted(found)]

    async def _of_arc(self, arc: ArcView, prefix: str) -> list[TopicView]:
        try:
            return await self._list_at(",".join(arc.nodes), prefix)
        except (TimedOut, NotConnected) as error:
            raise error.within(f"group {arc.group}") from None
