"""Staged puts: parts that nobody sees until one call publishes them, all or none, once."""

from __future__ import annotations

from collections.abc import Iterable

from oncecast.client.scanning import Scanning
from oncecast.wire import commands as do
from oncecast.wire.results import PublishedRange


class Staging(Scanning):
    """A part of `Client`.

    A source numbers what it publishes upwards. Any number of clients may stage parts for it, and
    any one of them publishes; whatever is repeated changes nothing. On a ring of groups a source is
    one for each topic, which must be named; elsewhere it may span several, and need not be.
    """

    async def stage(
        self, source: str, number: int, part: str, topic: str, count: int, batch: bytes
    ) -> bool:
        """Store a packed batch of so many messages; whether it is new, and of use."""
        command = do.Stage(source, number, part, topic, count, len(batch), 0, batch)
        return not (await self.call(command)).already

    async def publish_staged(
        self, source: str, number: int, parts: Iterable[str], topic: str = ""
    ) -> tuple[PublishedRange, ...]:
        """Append these parts to their topics, in this order; all else that was staged is dropped.

        Returns where they went, also when that had been done before.
        """
        done = await self.call(do.PublishStaged(source, number, tuple(parts), 0, topic))
        ranges: tuple[PublishedRange, ...] = done.ranges
        return ranges

    async def drop_staged(self, source: str, number: int, topic: str = "") -> int:
        """Forget the parts of this number; how many they were."""
        return int((await self.call(do.DropStaged(source, number, topic))).parts)

    async def close_source(self, source: str, topic: str = "") -> bool:
        """The source will never come back: what is known of it goes; whether there was one."""
        return not (await self.call(do.CloseSource(source, 0, topic))).already
