"""One HTTP request: its checked parameters, its body, and the session that serves it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from oncecast.errors import BadRequest, BodyTooLarge, Overloaded, TooSlow, WrongContent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecast.client.client import Client
    from oncecast.web.hub import Hub
    from oncecast.web.operations import Operation
    from oncecast.web.sessions import Session

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON = "application/json"
BYTES = "application/octet-stream"
BODY_RATE = 64 * 1024  # minimum bytes per second at which a body must arrive


class Raw(NamedTuple):
    """A body of another type than JSON."""

    data: bytes


class Answer(NamedTuple):
    """A body with a status that differs from the operation's usual one."""

    status: int
    body: Any


class Plain(NamedTuple):
    """A response that is not JSON."""

    status: int
    content: str
    data: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Call:
    """A request whose parameters and body are valid, as a handler sees it."""

    def __init__(
        self,
        hub: Hub,
        session: Session,
        operation: Operation,
        parameters: dict[str, Any],
        headers: dict[str, str],
        body: Any,
    ) -> None:
        self.hub, self.session, self.operation = hub, session, operation
        self.parameters, self.headers, self.body = parameters, headers, body

    def __getitem__(self, name: str) -> Any:
        return self.parameters[name]

    @property
    def client(self) -> Client:
        return self.session.client

    @property
    def topic(self) -> str:
        return str(self.parameters["topic"])

    @property
    def name(self) -> str:
        return str(self.parameters["name"])


class Bodies:
    """Reads request bodies within the limits of one body and of all bodies."""

    def __init__(self, body_bytes: int, bodies_bytes: int, timeout: float) -> None:
        self._most, self._total, self._timeout = body_bytes, bodies_bytes, timeout
        self.held = 0

    @contextmanager
    def hold(self) -> Iterator[Holding]:
        """Count the bytes of one body until the block ends."""
        holding = Holding(self)
        try:
            yield holding
        finally:
            self.held -= holding.size

    async def read(self, holding: Holding, headers: dict[str, str], receive: Receive) -> bytes:
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._most:
            raise BodyTooLarge(self._most)
        parts: list[bytes] = []
        seconds = self._timeout
        deadline = asyncio.get_running_loop().time() + seconds
        more = True
        while more:
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise TooSlow from None
            if message["type"] != "http.request":
                raise BadRequest("the client closed the connection before the body was complete")
            part = message.get("body", b"")
            more = message.get("more_body", False)
            holding.add(len(part))
            if holding.size > self._most:
                raise BodyTooLarge(self._most)
            if self.held > self._total:
                raise Overloaded("bytes of request bodies in progress")
            parts.append(part)
            deadline += len(part) / BODY_RATE
        return b"".join(parts)


class Holding:
    """The bytes that one request holds."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies, self.size = bodies, 0

    def add(self, size: int) -> None:
        self.size += size
        self._bodies.held += size


def content_type(headers: dict[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def decoded(operation: Operation, headers: dict[str, str], data: bytes) -> Any:
    """Return the body as the operation's type, or as Raw. Raise an error if it is invalid."""
    kind = content_type(headers)
    if operation.body is None:
        if data and kind not in (JSON, ""):
            raise BadRequest("the request has a body, but this method takes none")
        return None
    if kind == JSON:
        if not data and operation.bare:
            return None
        try:
            return json_of(data, operation.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"the body is invalid: {error}"[:500]) from None
    if operation.raw:
        return Raw(data)
    if not data and operation.bare:
        return None
    raise WrongContent(f"the content type is {kind or 'missing'!r:.80}")


def json_of(data: bytes, kind: Any) -> Any:
    """Return JSON data as `kind`. A whole number may be written as a float, as in JSON Schema."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        return msgspec.convert(with_integers(msgspec.json.decode(data)), kind)


def with_integers(data: Any) -> Any:
    """Return the data with integers in place of floats that are whole numbers."""
    if isinstance(data, float) and data.is_integer():
        return int(data)
    if isinstance(data, list):
        return [with_integers(each) for each in data]
    if isinstance(data, dict):
        return {name: with_integers(each) for name, each in data.items()}
    return data
