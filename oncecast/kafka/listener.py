"""The asyncio listener of the Kafka front end: connections in, responses out."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Self, cast

from oncecast.client.driver import ClientRuntime
from oncecast.client.options import ClientOptions
from oncecast.client.session.client import ClientSession
from oncecast.errors import CannotListen, OncecastError
from oncecast.kafka.events import Connected, Disconnected, Handled, Hangup, Received, Reply
from oncecast.kafka.frontend import FrontEnd
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack

LENGTH_BYTES = 4
KEY_BYTES = 2  # size of the API key at the start of a request
PRODUCE = bytes(KEY_BYTES)
REQUEST_BYTES_MAX = 64 << 20  # maximum size of a Produce request
OTHER_BYTES_MAX = 1 << 20  # any other request; its decoded form is many times larger
FIRST_REQUEST_BYTES_MAX = 64 << 10  # each request until the first valid one
BUFFER_BYTES = 64 << 10  # the buffer grows with the bytes of a larger request
KEPT_BUFFER_BYTES_MAX = 1 << 20  # a larger buffer is given up after its request
UNANSWERED_MAX = 32  # requests of one connection; further ones wait until some are answered
UNANSWERED_BYTES_MAX = 64 << 20  # unanswered requests of one connection
HELD_BYTES_MAX = 1 << 30  # buffers and unanswered requests of all connections
UNSENT_BYTES_MAX = 64 << 20  # responses to a client that does not read
ALL_UNSENT_BYTES_MAX = 1 << 30  # responses to all clients that do not read
UNSENT_BYTES_HIGH = 1 << 20  # no further request is handled until the client reads
IDLE_MAX = 600.0  # seconds without a request, as in Kafka
FIRST_REQUEST_SECONDS = 30.0  # until the first valid request
SWEEP_SECONDS = 5.0


class Connection(asyncio.BufferedProtocol):
    """A connection of a Kafka client. It splits the bytes into requests."""

    def __init__(self, listener: Listener, number: int, now: float) -> None:
        self._listener, self.number = listener, number
        self._buffer = bytearray(BUFFER_BYTES)
        self._begin = self._end = 0  # the unread bytes in the buffer
        self._transport: asyncio.Transport | None = None
        self._unanswered: deque[int] = deque()  # the size of each request
        self.held = 0  # bytes of the buffer beyond its first size, and of unanswered requests
        self._valid = self._cutting = self._unread = False
        self.used = now  # when the last request arrived or was answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop has its own class
        self._transport.set_write_buffer_limits(UNSENT_BYTES_HIGH)
        peer = transport.get_extra_info("peername") or ("",)
        self._listener.opened(self, str(peer[0]))

    # -- requests --

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._begin == self._end:
            self._begin = self._end = 0
            if len(self._buffer) > KEPT_BUFFER_BYTES_MAX:
                self._replace_buffer(BUFFER_BYTES)
        if self._end == len(self._buffer):
            # It doubles, so a client has to send the bytes that it makes this process allocate.
            size = min(self._needed(), 2 * len(self._buffer))
            if size > len(self._buffer):
                self._replace_buffer(size)
            else:
                held = self._end - self._begin
                self._buffer[:held] = self._buffer[self._begin : self._end]
                self._begin, self._end = 0, held
        return memoryview(self._buffer)[self._end :]

    def _replace_buffer(self, size: int) -> None:
        if not self._hold(size - len(self._buffer)):
            self._begin = self._end = 0  # The connection is closed.
            return
        unread = self._buffer[self._begin : self._end]
        self._buffer, self._begin, self._end = bytearray(size), 0, len(unread)
        self._buffer[: len(unread)] = unread

    def _hold(self, size: int) -> bool:
        """Count bytes as held. Close the connection if all connections hold too many."""
        if not self._listener.hold(size):
            self.close()
            return False
        self.held += size
        return True

    def _needed(self) -> int:
        """Return the size of the current request, as far as it is known."""
        if self._end - self._begin < LENGTH_BYTES:
            return LENGTH_BYTES
        head = self._buffer[self._begin : self._begin + LENGTH_BYTES]
        return LENGTH_BYTES + int.from_bytes(head, "big")

    def _limit(self) -> int:
        if not self._valid:
            return FIRST_REQUEST_BYTES_MAX
        begin = self._begin + LENGTH_BYTES
        key = self._buffer[begin : min(begin + KEY_BYTES, self._end)]
        return REQUEST_BYTES_MAX if PRODUCE.startswith(key) else OTHER_BYTES_MAX

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self._cut()

    def _cut(self) -> None:
        """Pass on the requests in the buffer, and read more unless too many are unanswered."""
        if self._cutting:
            return  # A reply has arrived while a request was passed on.
        self._cutting = True
        while not self._busy and self._take():
            pass
        self._cutting = False
        if self._transport is not None and not self._transport.is_closing():
            if self._busy:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    @property
    def _busy(self) -> bool:
        """Return whether the client must wait until requests are answered or responses read."""
        return (
            self._unread
            or len(self._unanswered) >= UNANSWERED_MAX
            or sum(self._unanswered) >= UNANSWERED_BYTES_MAX
        )

    def _take(self) -> bool:
        """Pass on the next request. Return False if there is none."""
        if self._transport is None or self._transport.is_closing():
            return False
        if self._end - self._begin < LENGTH_BYTES:
            return False
        size = self._needed()
        if size - LENGTH_BYTES > self._limit():
            self.close()
            return False
        if self._end - self._begin < size or not self._hold(size):
            return False
        begin, end = self._begin + LENGTH_BYTES, self._begin + size
        request = bytes(memoryview(self._buffer)[begin:end])
        self._begin, self.used = end, self._listener.now
        self._unanswered.append(size)
        self._listener.ask(Received(self.number, request))
        return True

    # -- responses --

    def reply(self, response: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(response)
        if self._reads_too_slowly:
            self.close()
        else:
            self.answered()

    @property
    def _reads_too_slowly(self) -> bool:
        if self.unsent <= UNSENT_BYTES_HIGH:
            return False
        return self.unsent > UNSENT_BYTES_MAX or self._listener.unsent > ALL_UNSENT_BYTES_MAX

    @property
    def unsent(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def answered(self) -> None:
        """Note that a request is done, and continue with further ones."""
        self._valid, self.used = True, self._listener.now
        self._hold(-self._unanswered.popleft())
        self._cut()

    def pause_writing(self) -> None:
        self._unread = True

    def resume_writing(self) -> None:
        self._unread = False
        self._cut()

    def expired(self, now: float) -> bool:
        """Return whether the client has sent no request for too long."""
        if self._valid and self._unanswered:
            return False
        return now - self.used >= (IDLE_MAX if self._valid else FIRST_REQUEST_SECONDS)

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
        self._numbers = self._held = 0
        self._loop = asyncio.get_running_loop()
        self._sweep: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None
        self.ended: asyncio.Future[OncecastError] = self._loop.create_future()

    async def __aenter__(self) -> Self:
        try:
            self._server = await self._loop.create_server(
                self._connection, self._host, self._port, start_serving=False
            )
        except OSError as error:
            raise CannotListen(
                f"cannot listen on {self._host}:{self._port}: {error.strerror}"
            ) from error
        self._port = self._server.sockets[0].getsockname()[1]
        self._runtime = self._assembled()
        try:
            await self._runtime.__aenter__()
        except BaseException:
            self._server.close()
            raise
        await self._server.start_serving()
        self._close_idle()
        return self

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        if self._sweep is not None:
            self._sweep.cancel()
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
        return Connection(self, self._numbers, self.now)

    def opened(self, connection: Connection, host: str) -> None:
        if len(self._connections) >= self._connections_max:
            connection.close()
            return
        self._connections[connection.number] = connection
        self.ask(Connected(connection.number, host))

    @property
    def now(self) -> float:
        return self._loop.time()

    @property
    def unsent(self) -> int:
        """Return the bytes of responses that clients have not read."""
        return sum(each.unsent for each in self._connections.values())

    def hold(self, size: int) -> bool:
        """Count bytes that connections hold. Return False if they would be too many."""
        if size > 0 and self._held + size > HELD_BYTES_MAX:
            self._log("closed a connection: the clients have too many bytes in flight")
            return False
        self._held += size
        return True

    def _close_idle(self) -> None:
        for each in list(self._connections.values()):
            if each.expired(self.now):
                each.close()
        self._sweep = self._loop.call_later(SWEEP_SECONDS, self._close_idle)

    def lost(self, connection: Connection) -> None:
        self.hold(-connection.held)
        if self._connections.pop(connection.number, None) is not None:
            self.ask(Disconnected(connection.number))

    def ask(self, request: Connected | Received | Disconnected) -> None:
        self._runtime.request(request)

    def _heard(self, event: Value) -> None:
        match event:
            case Reply(number, response):
                if number in self._connections:
                    self._connections[number].reply(response)
            case Handled(number):
                if number in self._connections:
                    self._connections[number].answered()
            case Hangup(number, why):
                self._log(f"closed connection {number}: {why}")
                if number in self._connections:
                    self._connections[number].close()
            case _:
                raise AssertionError(f"unexpected event {event}")

    def _ended(self, error: OncecastError) -> None:
        if not self.ended.done():
            self.ended.set_result(error)
