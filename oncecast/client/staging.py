"""Staged puts: parts that stay invisible until one call publishes all of them, or none, once."""

from __future__ import annotations

from collections.abc import Iterable

from oncecast.client.requests import Requests
from oncecast.errors import TooMany
from oncecast.wire import commands as do
from oncecast.wire.limits import PARTS_MAX
from oncecast.wire.results import PublishedRange


class StagedPuts:
    """Stages parts for a source, which numbers its publications upwards.

    Any number of clients may stage parts, and any of them may publish. Repeated calls have no
    effect. On a ring each topic has its own sources, so the topic must be named. On a single group
    a source may span topics.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def stage(
        self, source: str, number: int, part: str, topic: str, count: int, batch: bytes
    ) -> bool:
        command = do.Stage(source, number, part, topic, count, len(batch), 0, batch)
        return not (await self._requests.call(command)).already

    async def publish(
        self, source: str, number: int, parts: Iterable[str], topic: str
    ) -> tuple[PublishedRange, ...]:
        names = tuple(parts)
        if len(names) > PARTS_MAX:
            raise TooMany("parts in one publish", PARTS_MAX)
        command = do.PublishStaged(source, number, names, 0, topic)
        ranges: tuple[PublishedRange, ...] = (await self._requests.call(command)).ranges
        return ranges

    async def drop(self, source: str, number: int, topic: str) -> int:
        return int((await self._requests.call(do.DropStaged(source, number, topic))).parts)

    async def close(self, source: str, topic: str) -> bool:
        return not (await self._requests.call(do.CloseSource(source, 0, topic))).already
