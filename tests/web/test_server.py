"""Slow clients and too many connections are disconnected (WEB-1)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import oncecast
from oncecast.web import Limits, application, server
from oncecast.web.server import Listener
from oncecast.wire.retention import Policy
from tests.client.serving import run, serving

pytestmark = pytest.mark.long

QUICK = Limits(body_timeout=0.2, tails=1)
HEAD = b"GET /api/v1/cluster HTTP/1.1\r\nHost: 127.0.0.1\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def listening(path: Path, connections_max: int = 100) -> AsyncIterator[tuple[str, int]]:
    """Yield the address of a node, and the port of its HTTP interface."""
    async with serving(path) as node:
        app = application(node, limits=QUICK)
        listener = Listener(app, "127.0.0.1", 0, connections_max=connections_max)
        async with listener:
            yield node, int(listener.address.rpartition(":")[2])


async def opened(port: int, data: bytes, buffer: int = 0) -> Streams:
    """Open a connection and send these bytes."""
    connection = socket.socket()
    if buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=4096)
    writer.write(data)
    return reader, writer


async def rest(streams: Streams) -> bytes:
    """Return what arrives until the connection is closed."""
    reader, writer = streams
    found = b""
    try:
        while part := await reader.read(65536):
            found += part
    except ConnectionResetError:
        pass
    writer.transport.abort()
    return found


async def status(streams: Streams) -> bytes:
    """Return the status of the next answer, and leave the connection open."""
    head = await streams[0].readuntil(b"\r\n\r\n")
    return head.split(b" ")[1]


def test_client_that_sends_its_head_slowly_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WEB-1"""
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.1)

    async def work() -> None:
        async with listening(tmp_path) as (_, port):
            assert await rest(await opened(port, HEAD)) == b""
            assert await rest(await opened(port, b"")) == b""
            again = await opened(port, HEAD + b"\r\n")
            assert await status(again) == b"200"
            again[1].write(b"GET")
            assert (await rest(again)).count(b"HTTP/1.1") == 0

    run(work())


def test_client_that_sends_its_body_slowly_gets_an_error(tmp_path: Path) -> None:
    """WEB-1"""
    head = b"POST /api/v1/topics/t/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nOncecast-Request: 1\r\n"
    head += b"Content-Type: application/json\r\nContent-Length: 10\r\n\r\n1"

    async def work() -> None:
        async with listening(tmp_path) as (_, port):
            found = await rest(await opened(port, head))
            assert found.startswith(b"HTTP/1.1 408 ")
            assert b'"too-slow"' in found

    run(work())


def test_client_that_does_not_read_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WEB-1: the memory for its answer is freed, and its tail ends."""
    monkeypatch.setattr(server, "UNREAD_SECONDS", 0.2)
    follow = b"GET /api/v1/topics/t/tail?from=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

    async def work() -> None:
        async with listening(tmp_path) as (node, port):
            async with oncecast.connect(node) as client:
                await client.create_topic("t", Policy(keep_all=True))
                await client.put_many("t", [bytes(100_000)] * 100)
            stuck = await opened(port, follow, buffer=4096)
            assert await status(stuck) == b"200"
            # The limit is one tail. So this one is accepted when the stuck tail has ended.
            while await status(other := await opened(port, follow)) != b"200":
                other[1].transport.abort()
            stuck[1].transport.abort()
            other[1].transport.abort()

    run(work())


def test_new_connection_replaces_the_oldest_idle_one(tmp_path: Path) -> None:
    """WEB-1"""

    async def work() -> None:
        async with listening(tmp_path, connections_max=2) as (_, port):
            first = await opened(port, HEAD + b"\r\n")
            assert await status(first) == b"200"
            second = await opened(port, HEAD + b"\r\n")
            assert await status(second) == b"200"
            third = await opened(port, HEAD + b"\r\n")
            assert await status(third) == b"200"
            assert (await rest(first)).startswith(b"{")  # returns because it was closed
            second[1].write(HEAD + b"\r\n")
            assert b"HTTP/1.1 200" in await second[0].readuntil(b"\r\n\r\n")
            second[1].transport.abort()
            third[1].transport.abort()

    run(work())
