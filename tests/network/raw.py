"""A connection controlled byte by byte, to simulate misbehaving peers."""

from __future__ import annotations

import asyncio
import socket
from typing import Self

from oncecast.kernel.protocol import NodeId, Value
from oncecast.network.framing import GREETING, HEADER, HEADER_BYTES, PREAMBLE, frame
from oncecast.network.handshake import GREETINGS, PEER, VERSION, Hello, Welcome
from tests.network.talk import port_of, reserve


class Raw:
    """A connection on which the test reads and writes each frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._greeted = False

    @classmethod
    async def dial(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def write(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    def greet(self, greeting: Value) -> None:
        self.write(PREAMBLE, frame(GREETING, GREETINGS.encode(greeting)))

    def proceed(self, greeting: Value) -> None:
        """Send another greeting."""
        self.write(frame(GREETING, GREETINGS.encode(greeting)))

    async def read(self) -> tuple[int, bytes]:
        """Return the next frame."""
        if not self._greeted:
            assert await self.reader.readexactly(len(PREAMBLE)) == PREAMBLE
            self._greeted = True
        length, kind = HEADER.unpack(await self.reader.readexactly(HEADER_BYTES))
        return kind, await self.reader.readexactly(length)

    async def greeting(self) -> Value:
        kind, body = await self.read()
        assert kind == GREETING
        return GREETINGS.decode(body)

    async def closed(self) -> None:
        """Wait until the other side closes, and ignore its frames."""
        try:
            while await self.reader.read(65_536):
                pass
        except ConnectionError:
            pass
        self.close()

    def close(self) -> None:
        self.writer.transport.abort()


class RawPeer:
    """A listening port that does handshakes and leaves the rest to the test."""

    def __init__(self, sock: socket.socket | None = None) -> None:
        self._sock = sock or reserve()
        self.id = NodeId(f"127.0.0.1:{port_of(self._sock)}")
        self.accepted: asyncio.Queue[Raw] = asyncio.Queue()
        self._all: list[Raw] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, sock=self._sock)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for raw in self._all:
            raw.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._all.append(Raw(reader, writer))
        self.accepted.put_nowait(self._all[-1])

    async def welcome(self) -> Raw:
        """Accept the next connection and do the handshake."""
        raw = await self.accepted.get()
        assert isinstance(await raw.greeting(), Hello)
        raw.greet(Welcome(self.id, 1))
        return raw


def hello(
    to: NodeId,
    sender: str = "127.0.0.1:1",
    *,
    version: int = VERSION,
    cluster: str = "oncecast",
    role: str = PEER,
    incarnation: int = 1,
) -> Hello:
    return Hello(version, cluster, role, sender, to, incarnation)
