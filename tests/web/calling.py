"""Call an ASGI application without a network, for tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from oncecast.web import Limits, application
from tests.client.serving import serving

HOST = "127.0.0.1:8400"
BASE = "/api/v1"


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class Caller:
    """Sends requests to an application."""

    def __init__(self, app: Any, node: str) -> None:
        self.app, self.node = app, node

    async def raw(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Reply:
        """Send a request with exactly these headers, and the length of the body."""
        given = [(name.lower(), value) for name, value in (headers or {}).items()]
        if body:
            given.append(("content-length", str(len(body))))
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given],
        }
        sent: list[Any] = []
        bodies = iter([{"type": "http.request", "body": body}])

        async def receive() -> Any:
            for each in bodies:
                return each
            await asyncio.get_running_loop().create_future()
            raise AssertionError

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        data = b"".join(each.get("body", b"") for each in sent[1:])
        return Reply(sent[0]["status"], found, data)

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """Send a request below the base path, with a JSON body if there is one."""
        given = {"host": HOST, "oncecast-request": "1"}
        data = b""
        if body is not None:
            given["content-type"] = "application/json"
            data = json.dumps(body).encode()
        given.update((name.replace("_", "-"), value) for name, value in headers.items())
        return await self.raw(method, BASE + path, given, data)


@asynccontextmanager
async def calling(path: Path, limits: Limits | None = None) -> AsyncIterator[Caller]:
    """Yield a caller of an application that talks to a node."""
    async with serving(path) as address:
        app = application(address, limits=limits)
        try:
            yield Caller(app, address)
        finally:
            await app.close()
