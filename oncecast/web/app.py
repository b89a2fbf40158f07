"""The ASGI application: check a request, find its operation, and answer it.

    guard → route → session of the user → parameters and body → handler → answer

It can be mounted in another ASGI application. It needs no lifespan events, but `close` ends its
tails and sessions.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.responses import Response

from oncecast.client.client import Client
from oncecast.client.options import ClientOptions
from oncecast.errors import BadRequest, NoSuchPage, OncecastError, WrongMethod
from oncecast.web.exchange import (
    JSON,
    Answer,
    Call,
    Plain,
    Receive,
    Scope,
    Send,
    decoded,
)
from oncecast.web.files import Files
from oncecast.web.guard import LOOPBACK, Guard
from oncecast.web.hub import Hub
from oncecast.web.limits import Limits
from oncecast.web.openapi import document
from oncecast.web.operations import Operation, read_parameters
from oncecast.web.problems import problem_of
from oncecast.web.routes import BASE, EVENTS, OPERATIONS
from oncecast.web.sessions import Sessions

LOG = logging.getLogger("oncecast.web")

SAFE = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
PAGE_POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
API_POLICY = "default-src 'none'; frame-ancestors 'none'"
CHALLENGE = 'Basic realm="oncecast", charset="UTF-8", Bearer realm="oncecast"'
BUSY = (503, 504)  # statuses after which a client should try again


def application(
    source: Client | ClientOptions | str,
    *,
    hosts: Iterable[str] = LOOPBACK,
    login: bool = False,
    limits: Limits | None = None,
    console: bool = True,
) -> Application:
    """Return an ASGI application that serves the HTTP interface and the console.

    `source` is an open client, or the address or options of a cluster. With a client, all requests
    act as its user. Otherwise each request acts as the user that it logs in as, and `login` refuses
    requests without a login. Only requests whose Host header names one of `hosts` are served.
    """
    if isinstance(source, str):
        source = ClientOptions(address=source)
    return Application(source, hosts=hosts, login=login, limits=limits, console=console)


class Application:
    def __init__(
        self,
        source: Client | ClientOptions,
        *,
        hosts: Iterable[str],
        login: bool,
        limits: Limits | None,
        console: bool,
        passwords: bool = True,
    ) -> None:
        limits = limits or Limits()
        self._sessions = Sessions(source, limits, login=login, passwords=passwords)
        self.hub = Hub(limits, self._sessions)
        self._guard = Guard(hosts)
        self._files = Files() if console else None
        self._routes = routes_of(OPERATIONS)
        self._document = json.dumps(document(OPERATIONS, BASE)).encode()

    async def ready(self) -> None:
        """Connect to a node, unless all requests must log in. Raise an error if it fails."""
        await self._sessions.ready()

    async def close(self) -> None:
        """End all tails, and close all sessions that the application has opened."""
        await self.hub.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self.close()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        incoming = Incoming(headers, receive)
        try:
            found = await self._answer(scope, headers, incoming)
            if isinstance(found, Events):
                await found.send(incoming.receive, send)
                return
        except OncecastError as error:
            found = refusal(error)
        except Exception as error:
            LOG.exception("a request failed")
            found = refusal(OncecastError(f"the request failed: {type(error).__name__}"))
        if incoming.unread:
            found.headers["Connection"] = "close"
        await found(scope, receive, send)

    async def _answer(
        self, scope: Scope, headers: dict[str, str], incoming: Incoming
    ) -> Response | Events:
        method = scope["method"]
        self._guard.check(method, headers, scope["scheme"])
        segments = segments_of(scope)
        if segments[:2] != BASE.strip("/").split("/"):
            return self._page(method, segments, headers)
        if segments[2:] == ["openapi.json"] and method in ("GET", "HEAD"):
            return response(200, JSON, self._document, API_POLICY)
        operation, names = self._route(method, segments[2:])
        session = await self._sessions.of(headers.get("authorization"))
        with session.use(), self.hub.bodies.hold() as holding:
            parameters = read_parameters(operation, names, scope["query_string"], headers)
            data = b""
            if incoming.unread:
                data = await self.hub.bodies.read(holding, headers, incoming.receive)
            body = decoded(operation, headers, data)
            call = Call(self.hub, session, operation, parameters, headers, body)
            with self.hub.request():
                result = await operation.handler(call)
        if operation.content == EVENTS:
            return Events(result, call)
        return answered(operation, result)

    def _route(self, method: str, segments: list[str]) -> tuple[Operation, dict[str, str]]:
        for template, operations in self._routes.get(len(segments), ()):
            names = matched(template, segments)
            if names is None:
                continue
            operation = operations.get("GET" if method == "HEAD" else method)
            if operation is None or (method == "HEAD" and operation.content == EVENTS):
                raise WrongMethod(", ".join(sorted(operations)))
            return operation, names
        raise NoSuchPage

    def _page(self, method: str, segments: list[str], headers: dict[str, str]) -> Response:
        if self._files is None:
            raise NoSuchPage
        if method not in ("GET", "HEAD"):
            raise WrongMethod("GET")
        return plain(self._files.answer([each for each in segments if each], headers), PAGE_POLICY)


class Incoming:
    """The body of a request, as it arrives."""

    def __init__(self, headers: dict[str, str], receive: Receive) -> None:
        self._receive = receive
        length = headers.get("content-length", "0")
        self.unread = length != "0" or "transfer-encoding" in headers

    async def receive(self) -> Any:
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            self.unread = False
        return message


class Events:
    """A response that is a stream of events. It ends when the client disconnects."""

    def __init__(self, events: AsyncIterator[bytes], call: Call) -> None:
        self._events, self._call = events, call

    async def send(self, receive: Receive, send: Send) -> None:
        with self._call.hub.tail(), self._call.session.use():
            streaming = asyncio.ensure_future(self._stream(send))
            gone = asyncio.ensure_future(disconnected(receive))
            try:
                await asyncio.wait(
                    (streaming, gone),
                    timeout=self._call.hub.limits.tail_seconds,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                gone.cancel()
                streaming.cancel()
            outcome, _ = await asyncio.gather(streaming, gone, return_exceptions=True)
            if isinstance(outcome, Exception):
                LOG.error("a tail failed", exc_info=outcome)
            elif isinstance(outcome, asyncio.CancelledError):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _stream(self, send: Send) -> None:
        head = {"Content-Type": f"{EVENTS}; charset=utf-8", "X-Accel-Buffering": "no"}
        headers = [
            (name.lower().encode(), value.encode())
            for name, value in (head | common(API_POLICY)).items()
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with aclosing(self._events) as events:  # type: ignore[type-var]
            async for part in events:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# Requests


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers. The values of a header that is sent twice are joined."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("utf-8", "replace")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def segments_of(scope: Scope) -> list[str]:
    """Return the decoded parts of the path below the place where the application is mounted."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    parts = raw.split(b"/")[1 + scope.get("root_path", "").rstrip("/").count("/") :]
    try:
        return [unquote_to_bytes(each).decode() for each in parts]
    except UnicodeDecodeError:
        raise BadRequest("the path is not valid UTF-8") from None


Routes = dict[int, list[tuple[tuple[str, ...], dict[str, Operation]]]]


def routes_of(operations: tuple[Operation, ...]) -> Routes:
    """Return the operations by the number of parts of their paths, then by path and method."""
    by_path: dict[tuple[str, ...], dict[str, Operation]] = {}
    for each in operations:
        by_path.setdefault(each.segments, {})[each.method] = each
    found: Routes = {}
    for template, methods in by_path.items():
        found.setdefault(len(template), []).append((template, methods))
    return found


def matched(template: tuple[str, ...], segments: list[str]) -> dict[str, str] | None:
    """Return the names in the path, or None if it does not have this form."""
    names: dict[str, str] = {}
    for part, segment in zip(template, segments, strict=True):
        if part.startswith("{"):
            names[part[1:-1]] = segment
        elif part != segment:
            return None
    return names


# Responses


def common(policy: str) -> dict[str, str]:
    return SAFE | {"Content-Security-Policy": policy, "Cache-Control": "no-store"}


def response(status: int, content: str, data: bytes, policy: str) -> Response:
    found = Response(data, status, common(policy), content)
    if content.startswith("text/") and "charset" not in content:
        found.headers["Content-Type"] = f"{content}; charset=utf-8"
    return found


def plain(each: Plain, policy: str) -> Response:
    found = response(each.status, each.content, each.data, policy)
    found.headers.update(dict(each.headers))
    return found


def answered(operation: Operation, result: Any) -> Response:
    if isinstance(result, Plain):
        return plain(result, API_POLICY)
    status = operation.status
    if isinstance(result, Answer):
        status, result = result
    if result is None:
        return Response(status_code=status, headers=common(API_POLICY))
    return response(status, JSON, msgspec.json.encode(result), API_POLICY)


def refusal(error: OncecastError) -> Response:
    problem = problem_of(error)
    found = response(problem.status, JSON, msgspec.json.encode(problem), API_POLICY)
    if problem.status == 401:
        found.headers["WWW-Authenticate"] = CHALLENGE
    if problem.status in BUSY:
        found.headers["Retry-After"] = "1"
    if isinstance(error, WrongMethod):
        found.headers["Allow"] = error.allowed
    return found
