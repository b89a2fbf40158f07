"""Send valid and invalid requests to the monitoring HTTP server."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from oncecast.node.http import CONNECTIONS_MAX, REQUEST_BYTES_MAX, HttpServer, Page

PAGES = {"/health": lambda: Page(200, "text/plain", "fine\n")}


async def visit(request: bytes) -> bytes:
    server = HttpServer(PAGES)
    port = await server.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), 20.0)
    finally:
        writer.close()
        await server.close()


@pytest.mark.parametrize(
    ("request_", "status", "body"),
    [
        (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"200 OK", b"fine\n"),
        (b"GET /health?x=1 HTTP/1.0\r\n\r\n", b"200 OK", b"fine\n"),
        (b"HEAD /health HTTP/1.1\r\n\r\n", b"200 OK", b""),
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found", b"/health\n"),
        (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", b"404 Not Found", b"/health\n"),
        (b"POST /health HTTP/1.1\r\n\r\n", b"405 Method Not Allowed", b"use GET or HEAD\n"),
        (b"GET /health\r\n\r\n", b"400 Bad Request", b"bad request\n"),
        (b"\xff\x00\r\n\r\n", b"400 Bad Request", b"bad request\n"),
    ],
)
def test_http_request_gets_the_expected_status_and_body(
    request_: bytes, status: bytes, body: bytes
) -> None:
    head, _, found = asyncio.run(visit(request_)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert found == body


@pytest.mark.parametrize("request_", [b"", b"GET /health", b"x" * (4 * REQUEST_BYTES_MAX)])
def test_incomplete_or_oversized_request_is_not_answered(request_: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        assert asyncio.run(visit(request_)) == b""


def test_slow_http_clients_do_not_block_other_clients() -> None:
    """SEC-3: with too many connections, the oldest is closed."""

    async def test() -> None:
        door = HttpServer(PAGES)
        port = await door.open("127.0.0.1", 0)
        slow = []
        for _ in range(CONNECTIONS_MAX):
            slow.append(await asyncio.open_connection("127.0.0.1", port))
            slow[-1][1].write(b"GET /health HT")
            await slow[-1][1].drain()
        for dropped in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /health HTTP/1.1\r\n\r\n")
            assert (await asyncio.wait_for(reader.read(), 20.0)).endswith(b"fine\n")
            writer.close()
            if not dropped:
                with contextlib.suppress(ConnectionError):
                    assert await asyncio.wait_for(slow[0][0].read(), 20.0) == b""
        last_reader, last = slow[-1]
        last.write(b"TP/1.1\r\n\r\n")
        assert (await asyncio.wait_for(last_reader.read(), 20.0)).endswith(b"fine\n")
        for _, writer in slow:
            writer.close()
        await door.close()

    asyncio.run(test())
