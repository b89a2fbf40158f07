"""The door of a process: accepts connections, hears their Hello, hands them to whom they want.

A stranger costs a socket and a little memory, for a few seconds: what it may send, how long it may
take and how many there may be is bounded before it has said who it is. When there are too many, the
one that has waited longest must go, because an honest one is through within a round trip.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass, field

from oncecast.kernel.errors import Absent, CannotListen, NetworkError, OutOfPlace, Refused
from oncecast.network.addresses import is_loopback, name_of, split_home
from oncecast.network.clients import Client
from oncecast.network.connection import Connection, Greeting, Leaving, Wires
from oncecast.network.framing import GREETING
from oncecast.network.handshake import GREETINGS, Hello, Identity, Refusal
from oncecast.network.incidents import line, logger
from oncecast.network.rooms import Room, Rooms
from oncecast.network.tls import Tls

BACKLOG = 256
ACCEPT_PAUSE = 0.1  # when the system is out of sockets

Listen = str | socket.socket | list[socket.socket]  # an address, or sockets that have one


@dataclass(eq=False)
class Stranger:
    """Somebody who has come and not yet said who it is."""

    sock: socket.socket
    name: str
    taken: bool = False  # by the loop, which then closes the socket
    task: asyncio.Task[None] = field(init=False)


class Listener:
    def __init__(self, wires: Wires, identity: Identity, tls: Tls | None) -> None:
        self.rooms: Rooms = {}
        self.connections: dict[Connection, None] = {}
        self._wires, self._identity, self._tls = wires, identity, tls
        self._sockets: list[socket.socket] = []
        self._strangers: dict[Stranger, None] = {}  # oldest first

    async def open(self, listen: Listen, *, insecure: bool) -> None:
        if isinstance(listen, str):
            listen = await bind(listen)
        self._sockets = [listen] if isinstance(listen, socket.socket) else list(listen)
        for sock in self._sockets:
            host, port = sock.getsockname()[:2]
            if self._tls is None and not insecure and not is_loopback(host):
                await self.close()
                raise CannotListen(
                    f"{host}:{port} can be reached from other machines and TLS is off: give this "
                    "node a certificate, listen on 127.0.0.1, or allow it with insecure=True"
                )
            sock.setblocking(False)
            sock.listen(BACKLOG)
            self._listen(sock)
            facts = {"at": f"{host}:{port}", "tls": "on" if self._tls else "off"}
            logger.info(line("listening", facts))

    async def close(self) -> None:
        """Accept no more, and turn away who is not through yet; sessions go on."""
        for sock in self._sockets:
            self._wires.loop.remove_reader(sock)
            sock.close()
        self._sockets.clear()
        strangers = list(self._strangers)
        for stranger in strangers:
            self._show_out(stranger)
        await asyncio.gather(*(each.task for each in strangers), return_exceptions=True)

    def _listen(self, sock: socket.socket) -> None:
        if sock.fileno() >= 0:
            self._wires.loop.add_reader(sock, self._accept, sock)

    def _accept(self, sock: socket.socket) -> None:
        incidents, options = self._wires.incidents, self._wires.options
        try:
            guest, address = sock.accept()
        except BlockingIOError:  # it has left again
            return
        except OSError as error:  # out of file descriptors: it would be called again at once
            incidents.report("crowded", logging.ERROR, peer="?", reason=error)
            self._wires.loop.remove_reader(sock)
            self._wires.loop.call_later(ACCEPT_PAUSE, self._listen, sock)
            return
        name = f"{address[0]}:{address[1]}"
        self._wires.stats.accepted += 1
        if len(self.connections) + len(self._strangers) >= options.connections_max:
            guest.close()
            incidents.report("crowded", peer=name, reason="too many connections")
            return
        if len(self._strangers) >= options.strangers_max:
            self._show_out(next(iter(self._strangers)))
        guest.setblocking(False)
        stranger = Stranger(guest, name)
        stranger.task = asyncio.create_task(self._receive(stranger))
        stranger.task.add_done_callback(lambda _: self._strangers.pop(stranger, None))
        self._strangers[stranger] = None

    def _show_out(self, stranger: Stranger) -> None:
        del self._strangers[stranger]
        stranger.task.cancel()
        if not stranger.taken:  # its task will never begin
            stranger.sock.close()

    async def _receive(self, stranger: Stranger) -> None:
        """From the first byte to the Welcome, in bounded time."""
        stranger.taken = True
        name = stranger.name
        greeting = Greeting(self._wires)
        connection = Connection(self._wires, greeting, name)
        timeout = self._wires.options.handshake_timeout
        try:
            async with asyncio.timeout(timeout):
                await self._wires.loop.connect_accepted_socket(
                    lambda: connection,
                    stranger.sock,
                    ssl=self._tls.server if self._tls else None,
                )
                hello = await greeting.wait()
            self._admit(connection, hello)
        except TimeoutError:
            connection.fail("overdue", f"no handshake within {timeout} s")
        except asyncio.CancelledError:
            connection.fail("crowded", "turned away before its handshake was done")
            raise
        except OSError as error:  # of TLS, above all
            self._wires.incidents.report("hostile", peer=name, reason=f"no TLS handshake: {error}")
        except NetworkError:
            pass  # it went away, or was reported when it broke the rules
        finally:
            if connection not in self.connections:
                connection.abandon("no handshake")

    def _admit(self, connection: Connection, hello: object) -> None:
        if connection.ended:  # since its Hello
            return
        if not isinstance(hello, Hello):
            connection.fail("hostile", str(OutOfPlace("it does not begin with a Hello")))
            return
        try:
            self._identity.check_speech(hello)
            room = self._room(name_of(hello.to))
            if hello.role not in room.roles:
                raise Refused(f"no role {hello.role!r} here: a node has {', '.join(room.roles)}")
            session = room.roles[hello.role](connection, hello)
        except (Refused, Absent) as refused:
            self._refuse(connection, refused)
            return
        connection.session = session
        options = self._wires.options
        connection.framer.trust(options.frame_bytes_max)
        told = (session.name, options.batch_bytes_max) if isinstance(session, Client) else ()
        connection.send(GREETING, room.identity.welcome(*told))
        self.connections[connection] = None
        connection.over.add_done_callback(lambda _: self.connections.pop(connection))

    def _room(self, name: str) -> Room:
        if name not in self.rooms:
            raise Absent(f"no replica of {name[:64]} here: ask {self._identity.me} who has one")
        return self.rooms[name]

    def _refuse(self, connection: Connection, refused: Refused | Absent) -> None:
        passing = isinstance(refused, Absent)
        level = logging.INFO if passing else logging.WARNING  # groups move all the time
        self._wires.incidents.report("refused", level, peer=connection.name, reason=refused)
        connection.session = Leaving()
        connection.send(GREETING, GREETINGS.encode(Refusal(str(refused), passing)))
        connection.close("refused")


async def bind(listen: str) -> list[socket.socket]:
    """A socket for each address that the host has: localhost often has two."""
    host, port = split_home(listen)
    loop = asyncio.get_running_loop()
    sockets: list[socket.socket] = []
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, *_, address in found:
            sockets.append(socket.create_server(address[:2], family=family, backlog=BACKLOG))
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise CannotListen(
            f"{listen}: {error.strerror or error}; stop what uses the port, or listen elsewhere"
        ) from error
    return sockets
