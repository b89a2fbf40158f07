"""A minimal HTTP server for /metrics, /health and /live.

A request is a GET or HEAD without a body. It must be at most 4 KiB long and arrive within five
seconds. The server closes the connection after the response. If there are too many connections, it
closes the oldest one, so slow clients cannot block others.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import NamedTuple

REQUEST_BYTES_MAX = 4096
REQUEST_TIMEOUT = 5.0
CONNECTIONS_MAX = 32

REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


CHALLENGE = 'WWW-Authenticate: Bearer realm="oncecast"\r\n'


class Page(NamedTuple):
    status: int
    kind: str
    body: str


Pages = dict[str, Callable[[], Page]]


class HttpServer:
    def __init__(
        self, pages: Pages, admits: Callable[[bytes], bool] = lambda request: True
    ) -> None:
        self._pages, self._admits = pages, admits
        self._server: asyncio.Server | None = None
        self._visitors: dict[asyncio.StreamWriter, None] = {}  # oldest first

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Start listening and return the port."""
        self._server = await asyncio.start_server(
            self._serve,
            host,
            port,
            limit=REQUEST_BYTES_MAX,
            start_serving=True,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else REQUEST_TIMEOUT,
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._visitors) >= CONNECTIONS_MAX:
            oldest = next(iter(self._visitors))
            del self._visitors[oldest]
            oldest.transport.abort()
        self._visitors[writer] = None
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                writer.write(self._answer(await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client disconnected, was too slow, or sent too much
        finally:
            self._visitors.pop(writer, None)
            writer.close()

    def _answer(self, request: bytes) -> bytes:
        words = request.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or words[2] not in (b"HTTP/1.0", b"HTTP/1.1"):
            page = Page(400, "text/plain", "bad request\n")
        elif words[0] not in (b"GET", b"HEAD"):
            page = Page(405, "text/plain", "use GET or HEAD\n")
        elif not self._admits(request):
            page = Page(401, "text/plain", "send the token: Authorization: Bearer TOKEN\n")
        else:
            path = words[1].split(b"?", 1)[0].decode("latin-1")
            known = self._pages.get(path)
            page = known() if known else Page(404, "text/plain", " ".join(self._pages) + "\n")
        body = page.body.encode()
        head = (
            f"HTTP/1.1 {page.status} {REASONS[page.status]}\r\n"
            f"Content-Type: {page.kind}; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n"
            f"{CHALLENGE if page.status == 401 else ''}\r\n"
        ).encode()
        return head if words[0] == b"HEAD" else head + body
