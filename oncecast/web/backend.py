"""The requests of the HTTP interface to the nodes: scans, views and commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncecast.client.scanning import Page
from oncecast.errors import NotSubscribed
from oncecast.wire.commands import FromOffset, Start
from oncecast.wire.frames import ClientCommand, SubscriptionView, TopicView, View
from oncecast.wire.message import Message

if TYPE_CHECKING:
    from oncecast.client.client import Client


class Backend:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, command: ClientCommand) -> Any:
        """Have the node execute `command` once. Return its result or raise its refusal."""
        return await self._client.parts.usable.requests.call(command)

    async def page(
        self, topic: str, start: Start, *, size: int, topic_id: int = 0, wait: float = 0.0
    ) -> Page:
        scans = self._client.parts.usable.scans
        return await scans.page(topic, start, size=size, topic_id=topic_id, wait=wait)

    async def topics(
        self, *, prefix: str = "", after: str = "", limit: int = 1000, subscriptions: bool = False
    ) -> View:
        """Return topics of the connected group, sorted by name."""
        return await self._client.parts.usable.cluster.look(
            prefix=prefix, after=after, limit=limit, subscriptions=subscriptions
        )

    async def describe(self, topic: str) -> TopicView:
        return await self._client.describe(topic)

    async def subscription(self, topic: str, name: str) -> SubscriptionView:
        """Return a subscription, or raise NotSubscribed."""
        for each in (await self.describe(topic)).subscriptions:
            if each.name == name:
                return each
        raise NotSubscribed(topic, name)


def messages_of(page: Page, limit: int) -> list[Message]:
    """Return up to `limit` messages of a page."""
    found: list[Message] = []
    for each in page.slices:
        if len(found) >= limit:
            break
        found += each.messages()
    return found[:limit]


def offset(number: int) -> Start:
    return FromOffset(number)
