"""Persistent streams, which a cluster stores in a topic with the same name.

A write returns when a majority has the value on disk. The writer also sends the value to readers
that are not persistent. Persistent readers read the topic from its start.
"""

from __future__ import annotations

import asyncio
import platform
from typing import TYPE_CHECKING

from oncecast.client.client import EARLIEST, Client
from oncecast.errors import CacheFull, OncecastError
from oncecast.kernel.protocol import NodeId
from oncecast.streams.protocols import reading
from oncecast.streams.protocols.cache import Sample
from oncecast.streams.protocols.events import Feed
from oncecast.streams.protocols.policies import QoS
from oncecast.streams.reader import Reader
from oncecast.streams.writer import VALUE_BYTES_MAX, Writer
from oncecast.wire.message import Message
from oncecast.wire.retention import Policy

if TYPE_CHECKING:
    from oncecast.streams.host import Host

FEED_MAX = 512  # maximum number of values that a reader fetches from the topic at a time


class PersistentWriter(Writer):
    def __init__(self, node: Host, name: str, qos: QoS, client: Client) -> None:
        super().__init__(node, name, qos)
        self._client = client
        self._topic_exists = False

    def _update_buffer_space(self) -> None:
        self.buffer_space = 0  # values are never buffered, because each must be stored first

    async def write(self, value: bytes, key: bytes = b"") -> None:
        """Write a value, and return when it is on disk. Raise OncecastError if that fails.

        CacheFull means that the value is stored, but not sent to readers that are not persistent.
        """
        if type(value) is not bytes or type(key) is not bytes or len(value) > VALUE_BYTES_MAX:
            self.refuse(value, key)
        self._check_open()
        if not self._topic_exists:
            await create_topic(self._client, self.name)
            self._topic_exists = True
        await self._client.put(self.name, value, key or None)
        try:
            await super().write(value, key)
        except CacheFull as error:
            remedy = "don't write the value again; it is already in the topic"
            raise error.reworded(remedy=remedy) from None


class PersistentReader(Reader):
    def __init__(self, node: Host, name: str, qos: QoS, client: Client) -> None:
        super().__init__(node, name, qos)
        self._client = client
        self._space_freed = asyncio.Event()
        self._failure: OncecastError | None = None

    def opened(self, pure: reading.Reader) -> None:
        super().opened(pure)
        self._feeding = asyncio.create_task(self._feed())

    async def _feed(self) -> None:
        name = reader_name(self._client, self._node.me)
        try:
            await create_topic(self._client, self.name)
            subscription = await self._client.subscribe(self.name, name, start=EARLIEST)
            try:
                # An earlier process that was killed may have left a subscription with a cursor.
                await subscription.seek(EARLIEST)
                while True:
                    messages = await subscription.get_many(FEED_MAX)
                    self._space_freed.clear()
                    self._node.request(Feed(self.name, tuple(map(sample, messages))))
                    if self._pure.blocked:
                        await self._space_freed.wait()
            finally:
                await self._client.unsubscribe(self.name, name)
        except OncecastError as error:
            self._failure = error
            self.arrived()

    def _check_open(self) -> None:
        super()._check_open()
        if self._failure is not None:
            raise self._failure

    def _note_taken(self) -> None:
        super()._note_taken()
        if not self._pure.blocked:
            self._space_freed.set()

    def close(self) -> None:
        super().close()
        self._feeding.cancel()

    async def ended(self) -> None:
        await asyncio.wait([self._feeding])


def reader_name(client: Client, node: NodeId) -> str:
    """Return the subscription name that a node's persistent readers use.

    A killed process leaves its subscription behind. The next process at the same address uses the
    same name and takes over the subscription. There is therefore at most one subscription per
    address.
    """
    owner = client.name if client.parts.options.durable_name else platform.node()
    return f"{owner} at {node}"  # several nodes may share a client


async def create_topic(client: Client, name: str) -> None:
    """Create a topic that keeps all messages.

    Raise TopicExists if the topic exists with another policy.
    """
    await client.create_topic(name, Policy(keep_all=True))


def sample(message: Message) -> Sample:
    """Return a message as a sample. Its number is its offset plus 1."""
    return Sample(NodeId(message.producer), message.offset + 1, message.key or b"", message.value)
