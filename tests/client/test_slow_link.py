"""A large message is sent once over a slow link that makes progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import oncecast
from oncecast.node.config import Settings
from oncecast.node.server import Server
from tests.client.serving import run, serving

pytestmark = pytest.mark.long

RATE = 1_000_000  # bytes per second
PIECE = 16 * 1024
VALUE = bytes(1_500_000)


class SlowLink:
    """A proxy that limits the bytes per second."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._pipes: list[asyncio.Task[None]] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._node.rsplit(":", 1)
        far_reader, far_writer = await asyncio.open_connection(host, int(port), limit=PIECE)
        for way in ((reader, far_writer), (far_reader, writer)):
            self._pipes.append(asyncio.create_task(self._pipe(*way)))

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(PIECE):
                await asyncio.sleep(len(piece) / RATE)
                writer.write(piece)
                await writer.drain()
        finally:
            writer.close()


@asynccontextmanager
async def slow_link(node: str) -> AsyncIterator[str]:
    """Yield the address of a slow proxy for the node."""
    server = await asyncio.start_server(SlowLink(node).accept, "127.0.0.1", 0, limit=PIECE)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def test_delivery_over_a_slow_link_is_sent_once(tmp_path: Path) -> None:
    """SVC-3"""

    async def test() -> None:
        async with (
            Server(Settings(data=str(tmp_path), listen="127.0.0.1:0")) as server,
            slow_link(server.me) as address,
            oncecast.connect(server.me) as near,
            oncecast.connect(address) as far,
        ):
            subscription = await far.subscribe("t")
            await near.put_many("t", [VALUE] * 2)
            for _ in range(2):
                message = await subscription.get()
                assert message is not None
                assert message.value == VALUE
            assert server.runtime.stats.bytes_out < 2.5 * len(VALUE)

    run(test())


def test_put_over_a_slow_link_is_sent_once(tmp_path: Path) -> None:
    """SVC-2"""

    async def test() -> None:
        async with (
            serving(tmp_path) as node,
            slow_link(node) as address,
            oncecast.connect(address) as far,
        ):
            for _ in range(2):
                far.put_nowait("t", VALUE)
            await far.flush()
            assert far.parts.runtime.stats.bytes_out < 2.5 * len(VALUE)

    run(test())
