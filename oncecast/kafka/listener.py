"""The asyncio listener of the Kafka front end: connections in, responses out."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from random import Random
from typing import Self, cast

from oncecast.client.driver import ClientRuntime
from oncecast.client.options import ClientOptions
from oncecast.client.session.client import ClientSession
from oncecast.errors import CannotListen, OncecastError
from oncecast.kafka.events import Connected, Disconnected, Hangup, Received, Reply
from oncecast.kafka.frontend import FrontEnd
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack

LENGTH_BYTES = 4
REQUEST_BYTES_MAX = 64 << 20
FIRST_REQUEST_BYTES_MAX = 64 << 10  # before a client has sent a valid request
UNANSWERED_MAX = 32  # requests of one connection; further ones are not read until some are answered
UNSENT_BYTES_MAX = 64 << 20  # responses to a client that does not read


class Connection(asyncio.BufferedProtocol):
    """A connection of a Kafka client. It cuts the bytes into requests."""

    def __init__(self, listener: Listener, number: int) -> None:
        self._listener, self.number = listener, number
        self._buffer = bytearray(1 << 16)
        self._begin = self._end = 0  # the unread bytes in the buffer
        self._transport: asyncio.Transport | None = None
        self.unanswered = 0
        self._valid = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop has its own class
        peer = transport.get_extra_info("peername") or ("",)
        self._listener.opened(self, str(peer[0]))

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._begin == self._end:
            self._begin = self._end = 0
        needed = self._needed()
        if self._begin and self._end == len(self._buffer):
            self._buffer[: self._end - self._begin] = self._buffer[self._begin : self._end]
            self._begin, self._end = 0, self._end - self._begin
        if needed > len(self._buffer) - self._begin:
            grown = bytearray(needed)
            grown[: self._end - self._begin] = self._buffer[self._begin : self._end]
            self._buffer, self._begin, self._end = grown, 0, self._end - self._begin
        return memoryview(self._buffer)[self._end :]

    def _needed(self) -> int:
        """Return the size of the current request, as far as it is known."""
        if self._end - self._begin < LENGTH_BYTES:
            return LENGTH_BYTES
        head = self._buffer[self._begin : self._begin + LENGTH_BYTES]
        return LENGTH_BYTES + int.from_bytes(head, "big")

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        limit = REQUEST_BYTES_MAX if self._valid else FIRST_REQUEST_BYTES_MAX
        while self._end - self._begin >= LENGTH_BYTES:
            size = self._needed()
            if size - LENGTH_BYTES > limit:
                self.close()
                return
            if self._end - self._begin < size:
                return
            begin, end = self._begin + LENGTH_BYTES, self._begin + size
            request = bytes(memoryview(self._buffer)[begin:end])
            self._begin = end
            self.unanswered += 1
            self._listener.ask(Received(self.number, request))
        if self.unanswered >= UNANSWERED_MAX and self._transport is not None:
            self._transport.pause_reading()

    def reply(self, response: bytes) -> None:
        self._valid = True
        transport = self._transport
        if transport is None:
            return
        transport.write(response)
        self.unanswered -= 1
        if self.unanswered == UNANSWERED_MAX - 1:
            transport.resume_reading()
        if transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._listener.lost(self)


class Listener:
    """Serves Kafka clients at an address. Use it in `async with`.

    `ended` is set when the front end cannot continue, for example because it is not authorized.
    """

    def __init__(
        self,
        options: ClientOptions,
        host: str,
        port: int,
        *,
        advertised: tuple[str, int] | None = None,
        auto_create: bool = True,
        connections_max: int = 1000,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._options, self._host, self._port = options, host, port
        self._advertised, self._auto_create = advertised, auto_create
        self._connections_max, self._log = connections_max, log
        self._connections: dict[int, Connection] = {}
        self._numbers = 0
        self._server: asyncio.Server | None = None
        self.ended: asyncio.Future[OncecastError] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._connection, self._host, self._port, start_serving=False
            )
        except OSError as error:
            raise CannotListen(f"{self._host}:{self._port}: {error.strerror}") from error
        self._port = self._server.sockets[0].getsockname()[1]
        self._runtime = self._assembled()
        try:
            await self._runtime.__aenter__()
        except BaseException:
            self._server.close()
            raise
        await self._server.start_serving()
        return self

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for each in list(self._connections.values()):
            each.close()
        await self._runtime.__aexit__(None, None, None)

    def _assembled(self) -> ClientRuntime:
        rng = Random()
        first, *others = self._options.begin_at(rng)
        me = NodeId(f"client/{secrets.token_hex(8)}")
        session = ClientSession(
            me,
            rng,
            node=NodeId(first),
            others=tuple(map(NodeId, others)),
            producer=self._options.name or "",
            incarnation=secrets.token_hex(16),
        )
        host, port = self._advertised or (self._host, self._port)
        front = FrontEnd(me, rng, host=host, port=port, auto_create=self._auto_create)
        return ClientRuntime(
            Stack([session, front]),
            session,
            journal=None,
            on_event=self._heard,
            ended=self._ended,
            limited=lambda _: None,
            tls=self._options.tls,
            login=self._options.login,
            secret=self._options.secret,
            cluster=self._options.cluster,
            connect_timeout=self._options.connect_timeout,
        )

    def _connection(self) -> Connection:
        self._numbers += 1
        return Connection(self, self._numbers)

    def opened(self, connection: Connection, host: str) -> None:
        if len(self._connections) >= self._connections_max:
            connection.close()
            return
        self._connections[connection.number] = connection
        self.ask(Connected(connection.number, host))

    def lost(self, connection: Connection) -> None:
        if self._connections.pop(connection.number, None) is not None:
            self.ask(Disconnected(connection.number))

    def ask(self, request: Connected | Received | Disconnected) -> None:
        self._runtime.request(request)

    def _heard(self, event: Value) -> None:
        match event:
            case Reply(number, response):
                if number in self._connections:
                    self._connections[number].reply(response)
            case Hangup(number, why):
                self._log(f"closed connection {number}: {why}")
                if number in self._connections:
                    self._connections[number].close()
            case _:
                raise AssertionError(f"unexpected event {event}")

    def _ended(self, error: OncecastError) -> None:
        if not self.ended.done():
            self.ended.set_result(error)
