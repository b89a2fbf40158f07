"""The listener of a process: accepts connections and passes them to the node they ask for.

Until its handshake is done, a connection costs a socket and a little memory for a few seconds. The
bytes, the time and the number of pending handshakes are limited. If there are too many, the oldest
is closed, because a genuine peer completes its handshake within a round trip.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass, field

from oncecast.errors import Absent, CannotListen, NetworkError, OutOfPlace, Refused
from oncecast.network.addresses import is_loopback, name_of, split_process
from oncecast.network.clients import Client
from oncecast.network.connection import Connection, Greeting, Leaving, Wires
from oncecast.network.framing import GREETING
from oncecast.network.handshake import GREETINGS, Hello, Identity, Refusal
from oncecast.network.incidents import line, logger
from oncecast.network.local import LocalStack, LocalStacks
from oncecast.network.tls import Tls

BACKLOG = 256
ACCEPT_PAUSE = 0.1  # seconds, when the system is out of file descriptors

Listen = str | socket.socket | list[socket.socket]  # an address, or bound sockets


@dataclass(eq=False)
class Handshake:
    """An accepted socket whose handshake is not done."""

    sock: socket.socket
    name: str
    started: bool = False  # then the task closes the socket
    task: asyncio.Task[None] = field(init=False)


class Listener:
    def __init__(self, wires: Wires, identity: Identity, tls: Tls | None) -> None:
        self.stacks: LocalStacks = {}
        self.connections: dict[Connection, None] = {}
        self._wires, self._identity, self._tls = wires, identity, tls
        self._sockets: list[socket.socket] = []
        self._handshakes: dict[Handshake, None] = {}  # oldest first

    async def open(self, listen: Listen, *, insecure: bool) -> None:
        if isinstance(listen, str):
            listen = await bind(listen)
        self._sockets = [listen] if isinstance(listen, socket.socket) else list(listen)
        for sock in self._sockets:
            host, port = sock.getsockname()[:2]
            if self._tls is None and not insecure and not is_loopback(host):
                await self.close()
                raise CannotListen(
                    f"{host}:{port} can be reached from other machines and TLS is off",
                    "give this node a certificate, listen on 127.0.0.1, or set insecure=True",
                )
            sock.setblocking(False)
            sock.listen(BACKLOG)
            self._listen(sock)
            facts = {"at": f"{host}:{port}", "tls": "on" if self._tls else "off"}
            logger.info(line("listening", facts))

    async def close(self) -> None:
        """Stop accepting and cancel pending handshakes; open sessions continue."""
        for sock in self._sockets:
            self._wires.loop.remove_reader(sock)
            sock.close()
        self._sockets.clear()
        handshakes = list(self._handshakes)
        for handshake in handshakes:
            self._cancel(handshake)
        await asyncio.gather(*(each.task for each in handshakes), return_exceptions=True)

    def _listen(self, sock: socket.socket) -> None:
        if sock.fileno() >= 0:
            self._wires.loop.add_reader(sock, self._accept, sock)

    def _accept(self, sock: socket.socket) -> None:
        incidents, options = self._wires.incidents, self._wires.options
        try:
            accepted, address = sock.accept()
        except BlockingIOError:  # the peer has closed it already
            return
        except OSError as error:  # out of file descriptors: pause, or the loop would spin
            incidents.report("crowded", logging.ERROR, peer="?", reason=error)
            self._wires.loop.remove_reader(sock)
            self._wires.loop.call_later(ACCEPT_PAUSE, self._listen, sock)
            return
        name = f"{address[0]}:{address[1]}"
        self._wires.stats.accepted += 1
        if len(self.connections) + len(self._handshakes) >= options.connections_max:
            accepted.close()
            incidents.report("crowded", peer=name, reason="too many connections")
            return
        if len(self._handshakes) >= options.handshakes_max:
            self._cancel(next(iter(self._handshakes)))
        accepted.setblocking(False)
        handshake = Handshake(accepted, name)
        handshake.task = asyncio.create_task(self._receive(handshake))
        handshake.task.add_done_callback(lambda _: self._handshakes.pop(handshake, None))
        self._handshakes[handshake] = None

    def _cancel(self, handshake: Handshake) -> None:
        del self._handshakes[handshake]
        handshake.task.cancel()
        if not handshake.started:
            handshake.sock.close()

    async def _receive(self, handshake: Handshake) -> None:
        """Run the handshake, with a time limit."""
        handshake.started = True
        name = handshake.name
        greeting = Greeting(self._wires)
        connection = Connection(self._wires, greeting, name)
        timeout = self._wires.options.handshake_timeout
        try:
            async with asyncio.timeout(timeout):
                await self._wires.loop.connect_accepted_socket(
                    lambda: connection,
                    handshake.sock,
                    ssl=self._tls.server if self._tls else None,
                )
                hello = await greeting.wait()
            self._admit(connection, hello)
        except TimeoutError:
            connection.fail("overdue", f"no handshake within {timeout} s")
        except asyncio.CancelledError:
            connection.fail("crowded", "closed before its handshake was done")
            raise
        except OSError as error:  # mostly TLS errors
            self._wires.incidents.report(
                "hostile", peer=name, reason=f"TLS handshake failed: {error}"
            )
        except NetworkError:
            pass  # closed by the peer, or already reported
        finally:
            if connection not in self.connections:
                connection.abandon("no handshake")

    def _admit(self, connection: Connection, hello: object) -> None:
        if connection.ended:  # since its Hello
            return
        if not isinstance(hello, Hello):
            connection.fail("hostile", str(OutOfPlace("the first frame is not a Hello")))
            return
        try:
            self._identity.check_speech(hello)
            stack = self._stack(name_of(hello.to))
            if hello.role not in stack.roles:
                raise Refused(f"unknown role {hello.role!r}", f"use {' or '.join(stack.roles)}")
            session = stack.roles[hello.role](connection, hello)
        except (Refused, Absent) as refused:
            self._refuse(connection, refused)
            return
        options = self._wires.options
        connection.framer.trust(options.frame_bytes_max)
        facts = (session.name, options.batch_bytes_max) if isinstance(session, Client) else ()
        connection.send(GREETING, stack.identity.welcome(*facts))
        self.connections[connection] = None
        connection.over.add_done_callback(lambda _: self.connections.pop(connection))

    def _stack(self, name: str) -> LocalStack:
        if name not in self.stacks:
            raise Absent(f"no replica of {name[:64]} here", f"ask {self._identity.me} where it is")
        return self.stacks[name]

    def _refuse(self, connection: Connection, refused: Refused | Absent) -> None:
        passing = isinstance(refused, Absent)
        level = logging.INFO if passing else logging.WARNING  # groups often move
        self._wires.incidents.report("refused", level, peer=connection.name, reason=refused)
        connection.switch(Leaving())
        connection.send(GREETING, GREETINGS.encode(Refusal(str(refused), passing)))
        connection.close("refused")


async def bind(listen: str) -> list[socket.socket]:
    """Bind a socket to each address of the host; localhost often has two."""
    host, port = split_process(listen)
    loop = asyncio.get_running_loop()
    sockets: list[socket.socket] = []
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, *_, address in found:
            sockets.append(socket.create_server(address[:2], family=family, backlog=BACKLOG))
    except OSError as error:
        for sock in sockets:
            sock.close()
        # create_server appends the address, which the message already has.
        cause = (error.strerror or str(error)).partition(" (while")[0]
        raise CannotListen(f"cannot listen on {listen}: {cause}") from error
    return sockets
