"""The asyncio listener of the Kafka front end: connections in, responses out.

Each user has a desk, with a session that acts for the user. So the node checks the permissions of
the user, and consumer groups of different users are separate.

    Connection → Reception, until the client has logged in → Desk of its user → nodes
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from oncecast.client.options import ClientOptions
from oncecast.errors import CannotListen, OncecastError
from oncecast.kafka.connection import HELD_BYTES_MAX, Connection
from oncecast.kafka.desk import Address, Desk, Terms
from oncecast.kafka.events import Connected, Disconnected, Handled, Hangup, Received, Reply
from oncecast.kafka.logins import Reception
from oncecast.kernel.protocol import Value
from oncecast.network.tls import Tls

SWEEP_SECONDS = 5.0
UNUSED_MAX = 60.0  # seconds that a desk without connections is kept
TLS_SECONDS = 15.0  # for the TLS handshake


class Listener:
    """Serves Kafka clients at an address. Use it in `async with`.

    With `mechanisms`, clients must log in. `ended` is set when the front end cannot continue, for
    example because it is not authorized.
    """

    def __init__(
        self,
        options: ClientOptions,
        host: str,
        port: int,
        *,
        advertised: Address | None = None,
        auto_create: bool = True,
        connections_max: int = 1000,
        tls: Tls | None = None,
        mechanisms: tuple[str, ...] = (),
        process: str = "",  # the node whose process this is, or "" in a process of its own
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._options, self._host, self._port = options, host, port
        self._advertised, self._auto_create, self._process = advertised, auto_create, process
        self._connections_max, self._log, self._tls = connections_max, log, tls
        self._connections: dict[int, Connection] = {}
        self._desks: dict[str, Desk] = {}
        self._placed: dict[int, Desk] = {}  # the desk of each connection that is logged in
        self._reception = Reception(options, mechanisms, self._admit, log) if mechanisms else None
        self._numbers = self._held = 0
        self._loop = asyncio.get_running_loop()
        self._closing: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None
        self.ended: asyncio.Future[OncecastError] = self._loop.create_future()

    async def __aenter__(self) -> Self:
        try:
            self._server = await self._loop.create_server(
                self._connection,
                self._host,
                self._port,
                start_serving=False,
                ssl=self._tls.server if self._tls else None,
                ssl_handshake_timeout=TLS_SECONDS if self._tls else None,
            )
        except OSError as error:
            raise CannotListen(
                f"cannot listen on {self._host}:{self._port}: {error.strerror}"
            ) from error
        self._port = self._server.sockets[0].getsockname()[1]
        try:
            await self._desk("").ready()
        except BaseException:
            await self.__aexit__()
            raise
        await self._server.start_serving()
        self._tidy()
        return self

    @property
    def address(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        if self._sweep is not None:
            self._sweep.cancel()
        self._server.close()
        for each in list(self._connections.values()):
            each.close()
        desks, self._desks = list(self._desks.values()), {}
        await asyncio.gather(*(each.close() for each in desks), *self._closing)

    # -- desks --

    def _desk(self, user: str) -> Desk:
        desk = self._desks.get(user)
        if desk is None:
            address = self._advertised or (self._host, self._port)
            terms = Terms(self._options, address, self._auto_create, self._process)
            desk = self._desks[user] = Desk(user, terms, self._heard, self._desk_ended)
        return desk

    async def _admit(self, connection: Connection, user: str) -> None:
        """Give a connection to the desk of its user. Raise an error if no node accepts the desk."""
        desk = self._desk(user)
        desk.unused_since = self.now
        try:
            await desk.ready()
        except OncecastError:
            self._drop(desk)
            raise
        if self._connections.get(connection.number) is connection:
            self._place(connection, desk)

    def _place(self, connection: Connection, desk: Desk) -> None:
        if self._reception is not None:
            self._reception.left(connection.number)
        connection.admitted = True
        desk.connections.add(connection.number)
        self._placed[connection.number] = desk
        desk.ask(Connected(connection.number, connection.host))

    def _desk_ended(self, desk: Desk, error: OncecastError) -> None:
        """Close the connections of a desk whose session has ended."""
        if not desk.user:
            if not self.ended.done():
                self.ended.set_result(error)
            return
        self._log(f"the session of {desk.user} has ended: {error}")
        for number in list(desk.connections):
            self._connections[number].close()
        self._drop(desk)

    def _drop(self, desk: Desk) -> None:
        if self._desks.get(desk.user) is desk:
            del self._desks[desk.user]
            task = asyncio.create_task(desk.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    # -- connections --

    def _connection(self) -> Connection:
        self._numbers += 1
        return Connection(self, self._numbers, self.now)

    def opened(self, connection: Connection) -> None:
        if len(self._connections) >= self._connections_max:
            connection.close()
            return
        self._connections[connection.number] = connection
        if self._reception is not None:
            self._reception.opened(connection)
        else:
            self._place(connection, self._desks[""])

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

    def _tidy(self) -> None:
        """Close idle connections, and desks that no connection has used for some time."""
        for each in list(self._connections.values()):
            if each.expired(self.now):
                each.close()
        for desk in list(self._desks.values()):
            if desk.user and not desk.connections and self.now - desk.unused_since > UNUSED_MAX:
                self._drop(desk)
        self._sweep = self._loop.call_later(SWEEP_SECONDS, self._tidy)

    def lost(self, connection: Connection) -> None:
        self.hold(-connection.held)
        self._connections.pop(connection.number, None)
        if self._reception is not None:
            self._reception.left(connection.number)
        desk = self._placed.pop(connection.number, None)
        if desk is not None:
            desk.connections.discard(connection.number)
            desk.unused_since = self.now
            desk.ask(Disconnected(connection.number))

    def ask(self, request: Received) -> None:
        desk = self._placed.get(request.connection)
        if desk is not None:
            desk.ask(request)
        elif self._reception is not None and request.connection in self._reception:
            self._reception.received(request.connection, request.request)

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
