"""Get and acknowledge the messages of exclusive subscriptions.

A request has no connection that could hold a reader. So this process remembers, for each
subscription, the epoch of the reader that it attached and the first message that is not
acknowledged. A get reads from there, without changing anything: a repeated get returns the same
messages. The epoch fences: once another reader has attached, acknowledgements with an older epoch
are refused.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import NamedTuple

from oncecast.client.scanning import Page
from oncecast.errors import Fenced, Repositioned
from oncecast.network.entropy import random_hex
from oncecast.web.backend import Backend, offset
from oncecast.wire import commands as do
from oncecast.wire.commands import ANY_EPOCH
from oncecast.wire.results import Acked, Attached

KNOWN_MAX = 10_000  # maximum subscriptions that are remembered
CHECK_AFTER = 1.0  # seconds after which a get checks that the reader still has the subscription
READ_FIRST = "get messages before you acknowledge them, or send the epoch that the get returned"


class Reader:
    """A reader of one subscription: its epoch, and the first message not acknowledged."""

    __slots__ = ("checked", "cursor", "delivered", "epoch", "incarnation", "suspect_below")

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.epoch = self.cursor = self.delivered = self.suspect_below = 0
        self.checked = 0.0

    def attached(self, result: Attached) -> None:
        self.epoch, self.cursor = result.epoch, result.cursor
        self.suspect_below = max(self.suspect_below, result.suspect_below)


class Taken(NamedTuple):
    """One page of messages. Those before `suspect_below` may have been delivered before."""

    reader: Reader
    page: Page
    cursor: int
    epoch: int
    suspect_below: int

    def deliver(self, upto: int) -> None:
        """Note that the messages before `upto` are delivered."""
        if self.reader.epoch == self.epoch:
            self.reader.delivered = max(self.reader.delivered, upto)


class Readers:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._readers: OrderedDict[tuple[str, str], Reader] = OrderedDict()

    async def take(
        self,
        topic: str,
        name: str,
        *,
        size: int,
        wait: float,
        epoch: int | None,
        take_over: bool = False,
    ) -> Taken:
        """Return messages from the first that is not acknowledged. Raise Fenced for an old epoch.

        Without an epoch, take the subscription over from a reader of another process. With
        `take_over`, also take it over from the readers of this process.
        """
        reader = self._readers.get((topic, name))
        if reader is None or take_over:
            if epoch is not None:
                raise Fenced()
            reader = await self._attach(topic, name)
        else:
            await self._check(topic, name, reader)
        if epoch not in (None, reader.epoch):
            raise Fenced(reader.epoch)
        cursor = reader.cursor
        page = await self._backend.page(topic, offset(cursor), size=size, wait=wait)
        suspect = max(reader.suspect_below, reader.delivered)
        return Taken(reader, page, cursor, reader.epoch, suspect)

    async def _attach(self, topic: str, name: str) -> Reader:
        reader = Reader(random_hex(16))
        reader.attached(await self._call_attach(topic, name, reader, ANY_EPOCH))
        self._readers[topic, name] = reader
        if len(self._readers) > KNOWN_MAX:
            self._readers.popitem(last=False)
        return reader

    async def _check(self, topic: str, name: str, reader: Reader) -> None:
        """Find out whether the subscription was moved, or another reader has attached."""
        now = asyncio.get_running_loop().time()
        if now - reader.checked < CHECK_AFTER:
            return
        try:
            attached = await self._call_attach(topic, name, reader, reader.epoch)
        except Fenced:
            self._forget(topic, name, reader)
            raise
        if attached.epoch != reader.epoch:
            reader.delivered = 0  # the subscription was moved
        reader.attached(attached)

    async def _call_attach(self, topic: str, name: str, reader: Reader, expected: int) -> Attached:
        attach = do.Attach(topic, name, reader.incarnation, expected)
        attached: Attached = await self._backend.call(attach)
        reader.checked = asyncio.get_running_loop().time()
        return attached

    def _forget(self, topic: str, name: str, reader: Reader) -> None:
        if self._readers.get((topic, name)) is reader:
            del self._readers[topic, name]

    async def ack(self, topic: str, name: str, upto: int, epoch: int | None) -> int:
        """Acknowledge all messages before `upto`. Return the cursor."""
        reader = self._readers.get((topic, name))
        if epoch is None:
            if reader is None:
                raise Fenced().reworded(
                    "this process has no reader of the subscription", READ_FIRST
                )
            epoch = reader.epoch
        try:
            acked: Acked = await self._backend.call(do.Ack(topic, name, epoch, upto))
        except (Fenced, Repositioned):
            if reader is not None and reader.epoch == epoch:
                self._forget(topic, name, reader)
            raise
        if reader is not None and reader.epoch == epoch:
            reader.cursor = max(reader.cursor, acked.cursor)
        return acked.cursor
