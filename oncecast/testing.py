"""Fixtures for pytest: a node in the test's process, and an address for Kafka clients.

pytest loads this plugin by itself. Each test gets a node of its own, with an empty directory, that
runs in a thread of the test's process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from oncecast.blocking import Client as BlockingClient
    from oncecast.client.client import Client
    from oncecast.client.portal import Portal
    from oncecast.kafka.listener import Listener
    from oncecast.node.server import Server

HERE = "127.0.0.1"


class Node:
    """A node that runs in a thread. Use it in `with`."""

    def __init__(self) -> None:
        self._portal: Portal
        self._server: Server
        self._directory: tempfile.TemporaryDirectory[str]
        self._client: BlockingClient | None = None
        self._listener: Listener | None = None

    @property
    def directory(self) -> str:
        """Return the node's temporary directory."""
        return self._directory.name

    @property
    def address(self) -> str:
        """Return the address for oncecast clients, Spark and commands."""
        return self._server.me

    @property
    def kafka(self) -> str:
        """Return the bootstrap address for Kafka clients. The first use starts the listener."""
        if self._listener is None:
            self._listener = self._portal.call(self._listen())
        return self._listener.address

    @property
    def client(self) -> BlockingClient:
        """Return a blocking client. The first use connects it."""
        if self._client is None:
            from oncecast import blocking

            self._client = blocking.connect(self.address)
            self._client.__enter__()
        return self._client

    def connect(self, **options: Any) -> Client:
        """Return an asyncio client that is not connected yet. See `oncecast.connect`."""
        from oncecast.client.client import connect

        return connect(self.address, **options)

    # -- start and stop --

    def __enter__(self) -> Node:
        from oncecast.client.portal import Portal

        self._directory = tempfile.TemporaryDirectory(prefix="oncecast-")
        self._portal = Portal()
        try:
            self._server = self._portal.call(self._start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._client is not None:
                self._client.__exit__(None, None, None)
            self._portal.call(self._stop())
        finally:
            self._end()

    def _end(self) -> None:
        self._portal.stop()
        self._directory.cleanup()

    async def _start(self) -> Server:
        from oncecast.node.config import Settings
        from oncecast.node.server import Server

        server = Server(Settings(data=f"{self.directory}/data", listen=f"{HERE}:0"))
        return await server.__aenter__()

    async def _listen(self) -> Listener:
        from oncecast.client.options import ClientOptions
        from oncecast.kafka.listener import Listener

        return await Listener(ClientOptions(address=self.address), HERE, 0).__aenter__()

    async def _stop(self) -> None:
        try:
            if self._listener is not None:
                await self._listener.__aexit__()
        finally:
            await self._server.__aexit__(None, None, None)


@pytest.fixture
def oncecast() -> Iterator[Node]:
    """Return a node with an empty directory, which runs until the test ends."""
    with Node() as node:
        yield node


@pytest.fixture
def kafka(oncecast: Node) -> str:
    """Return the bootstrap address of the test's node for any Kafka client."""
    return oncecast.kafka
