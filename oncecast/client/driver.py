"""A client session on a real network: the runtime of a node, with links that it dials.

A connection is used both ways. When it is lost the session hears of it and dials again. Only a node
that the application named and that refuses us, or one that tells us that a newer client goes by our
name, ends it for good; where others have sent us in vain, the session goes elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Self

from oncecast.client.errors import Fenced, NotConnected, OncecastError, StateUnusable
from oncecast.client.session.client import ClientSession
from oncecast.kernel.codec import Codec
from oncecast.kernel.errors import Malformed, OutOfPlace, Refused
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.network.addresses import split
from oncecast.network.connection import Connection, Greeting, Wires
from oncecast.network.framing import BYE, GREETING, HEADER_BYTES, MESSAGE, PONG
from oncecast.network.handshake import (
    CLIENT,
    GREETINGS,
    VERSION,
    Hello,
    Identity,
    Refusal,
    Welcome,
    turned_down,
)
from oncecast.network.links import Deliver, Down, Link
from oncecast.network.network import Runtime
from oncecast.network.options import MiB, Options, Stats
from oncecast.network.tls import Tls
from oncecast.network.transport import Transport
from oncecast.storage.errors import StorageError
from oncecast.storage.journal import Journal

NOWHERE = NodeId("localhost:0")  # nobody dials a client

# The session bounds what is under way by itself: these must not come first.
OPTIONS = Options(frame_bytes_max=65 * MiB, queue_bytes_max=128 * MiB, waiting_bytes_max=128 * MiB)

DIAL_PAUSE = 0.05

Ended = Callable[[OncecastError], None]  # why there is no session any more
Limited = Callable[[int], None]  # bytes of a batch that the node takes


class ClientLink(Link):
    """The link to a node, both ways."""

    def __init__(
        self,
        wires: Wires,
        identity: Identity,
        peer: NodeId,
        down: Down,
        tls: Tls | None,
        *,
        transport: ClientTransport,
    ) -> None:
        super().__init__(wires, identity, peer, down, tls)
        self._transport = transport
        self.problem = ""  # why there is no connection
        self.refused = False
        self.batch_bytes_max = 0  # as the node says
        self._talk = 0  # bytes of messages, both ways
        self.linked: asyncio.Future[None] = wires.loop.create_future()

    async def _shake_hands(self, connection: Connection, greeting: Greeting) -> None:
        host, port = split(self.peer)
        await self._wires.loop.create_connection(
            lambda: connection,
            host,
            port,
            ssl=self._tls.client if self._tls else None,
            server_hostname=host if self._tls else None,
        )
        identity = self._identity
        hello = Hello(
            VERSION, identity.cluster, CLIENT, self._transport.name, self.peer, identity.incarnation
        )
        connection.send(GREETING, GREETINGS.encode(hello))
        match await greeting.wait():
            case Welcome(_, _, you, limit):
                self._transport.name, self.batch_bytes_max = you, limit
                self._transport.limit()
            case Refusal() as refusal:
                raise turned_down(refusal)
            case _:
                raise Refused(f"{self.peer} answers a Hello with a Hello: it is no node")

    def send(self, message: bytes) -> None:
        self._talk += HEADER_BYTES + len(message)
        super().send(message)

    @property
    def moved(self) -> int:
        """Bytes that have come, or that the other side has; pings are no progress."""
        connection, talk = self._connection, self._talk - self.unsent_bytes
        if connection is None:
            return talk
        return talk - connection.in_kernel + connection.framer.unfinished

    def _dial_in_time(self) -> None:
        if not self._transport.over:
            super()._dial_in_time()

    def _up(self, connection: Connection) -> None:
        super()._up(connection)
        if not self.linked.done():
            self.linked.set_result(None)

    def _unreachable(self, error: Exception) -> None:
        self.problem = str(error) or "no answer"
        super()._unreachable(error)
        self.refused = isinstance(error, Refused)
        if self.refused and self.peer in self._transport.named:
            self._transport.end(NotConnected(f"{self.peer}: {self.problem}"))

    def frame(self, kind: int, body: memoryview) -> None:
        if kind == MESSAGE:
            self._talk += HEADER_BYTES + len(body)
            try:
                message = self._transport.codec.decode(body)
            except Malformed as error:
                self._wires.incidents.report("malformed", peer=self.peer, reason=error)
                return
            self._wires.stats.messages_in += 1
            self._transport.deliver(self.peer, message)
        elif kind == GREETING:
            told = GREETINGS.decode(body)
            self._transport.end(
                Fenced(told.reason if isinstance(told, Refusal) else "a second greeting")
            )
        elif kind == BYE and self._connection is not None:
            self._connection.close("the node stops")
        elif kind != PONG:
            raise OutOfPlace(f"a frame of kind {kind} from a node")


class ClientTransport(Transport):
    """Dials the nodes that its session watches, and listens to nobody."""

    def __init__(
        self,
        name: str,
        named: tuple[NodeId, ...],
        codec: Codec,
        *,
        deliver: Deliver,
        down: Down,
        ended: Ended,
        limited: Limited,
        options: Options,
        stats: Stats,
        tls: Tls | None,
    ) -> None:
        super().__init__(
            NOWHERE, codec, deliver=deliver, down=down, options=options, stats=stats, tls=tls
        )
        self.name = name  # the one we bring, then the one we were given (SVC-8)
        self.named = named  # by the application
        self.codec, self.deliver, self._limited = codec, deliver, limited
        self._ended, self.over = ended, False
        self._looking = asyncio.create_task(self._look())

    def end(self, why: OncecastError) -> None:
        """For good: who dialled again under a name that is another's would take it back."""
        self.over = True
        self._ended(why)

    def limit(self) -> None:
        """A batch may go to any of those that we know."""
        links = [link for link in self._links.values() if isinstance(link, ClientLink)]
        limits = [link.batch_bytes_max for link in links if link.batch_bytes_max]
        if limits:
            self._limited(min(limits))

    def moved(self, peer: NodeId) -> int:
        """Bytes over the link with this one so far, both ways."""
        return self.link(peer).moved

    def _link(self, peer: NodeId) -> Link:
        return self._links.get(peer) or self.link(peer)

    def link(self, peer: NodeId) -> ClientLink:
        link = self._links.get(peer)
        if link is None:
            link = self._links[peer] = ClientLink(
                self._wires, self.identity, peer, self._down, self._tls, transport=self
            )
        assert isinstance(link, ClientLink)
        return link


class ClientRuntime(Runtime):
    """Drives one client session."""

    def __init__(
        self,
        stack: Stack,
        session: ClientSession,
        *,
        journal: Journal | None,
        on_event: Callable[[Value], None],
        ended: Ended,
        limited: Limited,
        tls: Tls | None,
        cluster: str,
        connect_timeout: float,
    ) -> None:
        options = replace(OPTIONS, cluster=cluster)
        super().__init__(
            stack, me=session.me, journal=journal, on_event=on_event, tls=tls, options=options
        )
        self._session, self._told, self._limited = session, ended, limited
        self._connect_timeout = connect_timeout

    async def __aenter__(self) -> Self:
        """Connect; the session starts when it knows by which name it goes."""
        self._prepare()
        self._transport = transport = ClientTransport(
            self._session.producer,
            self._session.home.nodes,
            Codec(tuple(self.stack.wiring.receiver)),
            deliver=partial(self._input, self.stack.receive),
            down=partial(self._input, self.stack.down),
            ended=self._told,
            limited=self._limited,
            options=self.options,
            stats=self.stats,
            tls=self._tls,
        )
        try:
            await self._dial(transport)
        except BaseException:
            await transport.close(0.0)
            self._disk.shutdown()
            raise
        self.when_ended(self._broke)
        self._session.producer = transport.name
        self._session.moved = transport.moved
        self._input(self.stack.start)
        return self

    async def _dial(self, transport: ClientTransport) -> None:
        """The first connection decides whether there is a session at all; any node will do."""
        give_up = self._loop.time() + self._connect_timeout
        links = [transport.link(node) for node in self._session.home.nodes]
        while not any(link.linked.done() for link in links):
            for link in links:
                link.watch()
            refused = any(link.refused for link in links)
            if refused or self._loop.time() >= give_up:
                problems = [f"{link.peer}: {link.problem or 'no answer'}" for link in links]
                raise NotConnected("; ".join(problems), refused=refused)
            await asyncio.wait(
                [link.linked for link in links],
                timeout=DIAL_PAUSE,
                return_when=asyncio.FIRST_COMPLETED,
            )
        first = next(link for link in links if link.linked.done())
        self._session.home.node = first.peer
        for link in links:
            link.watched = link is first

    def send_now(self) -> None:
        """Write what was sent, without waiting for the end of the turn."""
        self._transport.flush()

    def _broke(self, error: BaseException | None) -> None:
        if error is not None:
            self._told(broken("session", error))


def broken(what: str, error: BaseException) -> OncecastError:
    """A disk that fails, or a bug: whoever waits must not wait for ever."""
    if isinstance(error, StorageError):
        return StateUnusable(str(error))
    return OncecastError(f"the {what} failed: {error!r}")
