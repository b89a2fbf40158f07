"""Persistent streams: a durable topic of the stream's name, in a cluster that this node knows.

What is written is on disk at a majority before the call returns, and is then sent as ever to
readers that request less. Persistent readers read the topic, from its beginning.
"""

from __future__ import annotations

import asyncio
import platform
from typing import TYPE_CHECKING

from oncecast.client.client import EARLIEST, Client
from oncecast.errors import NoRoom, OncecastError
from oncecast.kernel.protocol import NodeId
from oncecast.streams.protocols import reading
from oncecast.streams.protocols.cache import Sample
from oncecast.streams.protocols.events import Feed
from oncecast.streams.protocols.policies import QoS
from oncecast.streams.reader import Reader
from oncecast.streams.writer import VALUE_BYTES_MAX, Writer
from oncecast.wire.batch import Message
from oncecast.wire.retention import Policy

if TYPE_CHECKING:
    from oncecast.streams.host import Host

FED = 512  # values at a time


class PersistentWriter(Writer):
    def __init__(self, node: Host, name: str, qos: QoS, client: Client) -> None:
        super().__init__(node, name, qos)
        self._client = client
        self._made = False  # the topic

    def _look_for_room(self) -> None:
        self.room = 0  # nothing is gathered: each is on disk first

    async def write(self, value: bytes, key: bytes = b"") -> None:
        """Returns when it is on disk. Raises OncecastError if that cannot be; NoRoom if it is, and
        readers that request less do not get it."""
        if type(value) is not bytes or type(key) is not bytes or len(value) > VALUE_BYTES_MAX:
            self.refuse(value, key)
        self._check_open()
        if not self._made:
            await make_topic(self._client, self.name)
            self._made = True
        await self._client.put(self.name, value, key or None)
        try:
            await super().write(value, key)
        except NoRoom as error:
            remedy = "don't write the value again, it is in the topic"
            raise error.reworded(remedy=remedy) from None


class PersistentReader(Reader):
    def __init__(self, node: Host, name: str, qos: QoS, client: Client) -> None:
        super().__init__(node, name, qos)
        self._client = client
        self._room = asyncio.Event()
        self._failure: OncecastError | None = None

    def opened(self, pure: reading.Reader) -> None:
        super().opened(pure)
        self._feeding = asyncio.create_task(self._feed())

    async def _feed(self) -> None:
        name = reader_name(self._client, self._node.me)
        try:
            await make_topic(self._client, self.name)
            subscription = await self._client.subscribe(self.name, name, start=EARLIEST)
            try:
                # A process that was killed may have left it, with a cursor further on.
                await subscription.seek(EARLIEST)
                while True:
                    messages = await subscription.get_many(FED)
                    self._room.clear()
                    self._node.request(Feed(self.name, tuple(map(sample, messages))))
                    if self._pure.blocked:
                        await self._room.wait()
            finally:
                await self._client.unsubscribe(self.name, name)
        except OncecastError as error:
            self._failure = error
            self.arrived()

    def _check_open(self) -> None:
        super()._check_open()
        if self._failure is not None:
            raise self._failure

    def _took(self) -> None:
        super()._took()
        if not self._pure.blocked:
            self._room.set()

    def close(self) -> None:
        super().close()
        self._feeding.cancel()

    async def ended(self) -> None:
        await asyncio.wait([self._feeding])


def reader_name(client: Client, node: NodeId) -> str:
    """Return the name of the subscription of a node's persistent readers.

    A process that is killed leaves its subscription behind. The next process at the same address
    has the same name and takes the subscription over, so there is at most one for each address.
    """
    owner = client.name if client.durable_name else platform.node()
    return f"{owner} at {node}"  # several nodes may share a client


async def make_topic(client: Client, name: str) -> None:
    """One that exists keeps what its own policy says."""
    await client.create_topic(name, Policy(keep_all=True))


def sample(message: Message) -> Sample:
    """The number is the place in the topic, which begins with 1."""
    return Sample(NodeId(message.producer), message.offset + 1, message.key or b"", message.value)
