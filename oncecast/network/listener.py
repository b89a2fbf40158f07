"""The listener of a process: accepts connections and passes each one to the node it asks for.

Clients and peers have separate limits, so that clients cannot lock out peers. The size, duration
and number of pending handshakes are also limited (`pending.py`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from functools import partial

from oncecast.errors import (
    Absent,
    CannotListen,
    NetworkError,
    OutOfPlace,
    ProtocolError,
    Refused,
    TlsUnusable,
)
from oncecast.network.addresses import is_loopback, name_of, split_process
from oncecast.network.clients import Client
from oncecast.network.connection import Connection, Greeting, Leaving, Wires
from oncecast.network.framing import GREETING
from oncecast.network.gate import Dialler, Gate
from oncecast.network.handshake import GREETINGS, PEER, Ask, Hello, Identity, refusal
from oncecast.network.incidents import line, logger, tls_reason
from oncecast.network.local import Accept, LocalStack, LocalStacks
from oncecast.network.pending import Handshake, Pending
from oncecast.network.seats import Seats, owner_of
from oncecast.network.trust import Trust

BACKLOG = 256
CLOSED_EARLY = "closed during the TLS handshake; the peer may have rejected this node's certificate"
ACCEPT_PAUSE = 0.1  # seconds without accepting connections when file descriptors run out

Listen = str | socket.socket | list[socket.socket]  # an address, or bound sockets


class Listener:
    def __init__(self, wires: Wires, identity: Identity, trust: Trust, stacks: LocalStacks) -> None:
        self._wires, self._identity, self._trust = wires, identity, trust
        self._stacks = stacks
        self._gate = Gate(trust)
        self._sockets: list[socket.socket] = []
        self._pending = Pending()
        self._seats = Seats(wires.options, wires.stats)

    async def open(self, listen: Listen) -> None:
        tls = self._trust.tls
        if tls is not None and tls.files is not None and tls.files.certificate is None:
            raise TlsUnusable("this node has no certificate", "provide a certificate and its key")
        if isinstance(listen, str):
            listen = await bind(listen)
        self._sockets = [listen] if isinstance(listen, socket.socket) else list(listen)
        for sock in self._sockets:
            host, port = sock.getsockname()[:2]
            if tls is None and not self._trust.insecure and not is_loopback(host):
                await self.close()
                raise CannotListen(
                    f"{host}:{port} is reachable from other machines, but TLS is off",
                    "provide a certificate, listen on 127.0.0.1, or set insecure=True",
                )
            self._gate.exposed |= not is_loopback(host)
            sock.setblocking(False)
            sock.listen(BACKLOG)
            self._listen(sock)
            facts = {"at": f"{host}:{port}", "tls": "on" if tls else "off"}
            logger.info(line("listening", facts))

    async def close(self) -> None:
        """Stop accepting connections and cancel pending handshakes. Open sessions continue."""
        for sock in self._sockets:
            self._wires.loop.remove_reader(sock)
            sock.close()
        self._sockets.clear()
        await asyncio.gather(*self._pending.cancel_all(), return_exceptions=True)

    def _listen(self, sock: socket.socket) -> None:
        if sock.fileno() >= 0:
            self._wires.loop.add_reader(sock, self._accept, sock)

    def _accept(self, sock: socket.socket) -> None:
        incidents, options = self._wires.incidents, self._wires.options
        try:
            accepted, address = sock.accept()
        except BlockingIOError:  # the peer has already closed the connection
            return
        except OSError as error:  # out of file descriptors: pause, or the loop would spin
            incidents.report("crowded", logging.ERROR, peer="?", reason=error)
            self._wires.loop.remove_reader(sock)
            self._wires.loop.call_later(ACCEPT_PAUSE, self._listen, sock)
            return
        self._wires.stats.accepted += 1
        space = options.connections_max + options.peers_max - len(self._seats)
        if len(self._pending) >= min(options.handshakes_max, max(space, 1)):
            self._pending.cancel_one()
        accepted.setblocking(False)
        handshake = Handshake(accepted, *address[:2])
        handshake.task = asyncio.create_task(self._receive(handshake))
        handshake.task.add_done_callback(lambda _: self._pending.remove(handshake))
        self._pending.add(handshake)

    async def _receive(self, handshake: Handshake) -> None:
        """Run the handshake with a time limit."""
        handshake.started = True
        name = handshake.name
        greeting = Greeting(self._wires)
        connection = Connection(self._wires, greeting, name)
        timeout, tls = self._wires.options.handshake_timeout, self._trust.tls
        try:
            async with asyncio.timeout(timeout):
                await self._wires.loop.connect_accepted_socket(
                    lambda: connection,
                    handshake.sock,
                    ssl=tls.server if tls else None,
                )
                hello = await greeting.wait()
                if not isinstance(hello, Hello):
                    raise OutOfPlace("the first frame is not a Hello")
                handshake.done = await self._admit(
                    connection, hello, partial(greeting.ask, connection)
                )
        except TimeoutError:
            connection.fail("overdue", f"the handshake was not complete within {timeout} s")
        except asyncio.CancelledError:
            connection.fail("crowded", "closed before the handshake was complete")
            raise
        except ssl.SSLError as error:
            reason = f"TLS handshake failed: {tls_reason(error)}"
            self._wires.incidents.report("hostile", peer=name, reason=reason)
        except OSError as error:  # for example, the client has reached another node first
            reason = str(error) or CLOSED_EARLY
            self._wires.incidents.report("refused", logging.INFO, peer=name, reason=reason)
        except (Refused, Absent) as refused:
            self._refuse(connection, refused)
        except ProtocolError as error:
            connection.fail("hostile", str(error))
        except NetworkError:
            pass  # closed by the peer, or already reported
        finally:
            if not handshake.done:
                connection.abandon("no handshake")

    async def _admit(self, connection: Connection, hello: Hello, ask: Ask) -> bool:
        """Send a Welcome or raise an error. Return False if the connection has closed."""
        self._identity.check_speech(hello)
        self._role(hello)
        if hello.role == PEER:
            self._seats.check_peers()
        dialler = Dialler(connection.name, connection.peer_certificate(), ask)
        admission = await self._gate.admit(hello, dialler)
        if connection.ended:  # the connection was closed after its last frame
            return False
        # During the login, the stack may have closed, or other connections may have filled it up.
        accept, owner = self._role(hello), owner_of(admission.principal, connection.name)
        if hello.role == PEER:
            self._seats.check_peers()
        else:
            self._seats.make_space(owner)
        session = accept(connection, hello, admission.principal)
        options = self._wires.options
        connection.framer.trust(options.frame_bytes_max)
        facts = ("", 0)
        if isinstance(session, Client):
            facts, session.agent = (session.name, options.batch_bytes_max), admission.agent
        identity = self._stack(name_of(hello.to)).identity
        connection.send(
            GREETING,
            identity.welcome(
                *facts,
                login=admission.login,
                mac=admission.mac,
                principal=admission.principal,
            ),
        )
        self._seats.take(connection, hello.role, owner)
        return True

    def _role(self, hello: Hello) -> Accept:
        roles = self._stack(name_of(hello.to)).roles
        if hello.role not in roles:
            raise Refused(f"unknown role {hello.role!r}", f"use {' or '.join(roles)}")
        return roles[hello.role]

    def _stack(self, name: str) -> LocalStack:
        if name not in self._stacks:
            raise Absent(
                f"this process has no replica of {name[:64]}", "ask it which processes have one"
            )
        return self._stacks[name]

    def _refuse(self, connection: Connection, refused: Refused | Absent) -> None:
        if connection.ended:
            return
        # Groups move often, so Absent is not worth a warning.
        level = logging.INFO if isinstance(refused, Absent) else logging.WARNING
        self._wires.incidents.report("refused", level, peer=connection.name, reason=refused)
        connection.switch(Leaving())
        connection.send(GREETING, GREETINGS.encode(refusal(refused)))
        connection.close("refused")


async def bind(listen: str) -> list[socket.socket]:
    """Bind a socket to each address of the host. localhost, for example, often has two."""
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
        raise cannot_listen(listen, error) from error
    return sockets


def check_free(listen: str) -> None:
    """Raise CannotListen if the address is in use or does not belong to this machine."""
    host, port = split_process(listen)
    try:
        for family, kind, *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except OSError as error:
        raise cannot_listen(listen, error) from error


def cannot_listen(listen: str, error: OSError) -> CannotListen:
    # create_server appends the address, which our message already has.
    cause = (error.strerror or str(error)).partition(" (while")[0]
    elsewhere = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
    remedy = "use an address of this machine" if elsewhere else ""
    return CannotListen(f"cannot listen on {listen}: {cause}", remedy)
