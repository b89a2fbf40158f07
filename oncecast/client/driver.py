"""Run a client session on a real network.

Connections carry frames both ways. When a connection is lost, the session dials again. Two events
end the session for good: a node that the application named refuses the client, or a node reports
that another client has taken over the name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from oncecast.client.login import Login
from oncecast.client.session.client import ClientSession
from oncecast.client.unreachable import Problem, not_connected, problem_of
from oncecast.errors import (
    Fenced,
    Malformed,
    NotAuthenticated,
    NotConnected,
    OncecastError,
    OutOfPlace,
    Refused,
    StateUnusable,
    StorageError,
)
from oncecast.kernel.codec import Buffer, Codec
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.network.connection import Connection, Wires
from oncecast.network.entropy import random_bytes
from oncecast.network.framing import BYE, GREETING, HEADER_BYTES, MESSAGE, PONG
from oncecast.network.handshake import (
    CLIENT,
    GREETINGS,
    VERSION,
    Ask,
    Challenge,
    Hello,
    Identity,
    Proof,
    Refusal,
    Welcome,
    introduce,
    turned_down,
)
from oncecast.network.links import Deliver, Down, Link
from oncecast.network.network import Runtime
from oncecast.network.options import MiB, Options, Stats
from oncecast.network.transport import Transport
from oncecast.network.trust import Trust
from oncecast.security.meeting import NONCE_BYTES

if TYPE_CHECKING:
    from oncecast.network.tls import Tls
    from oncecast.security.secret import ClusterSecret
    from oncecast.storage.journal import Journal

NOWHERE = NodeId("localhost:0")  # a client has no address of its own

# The session has lower limits for its bytes in flight, so it never reaches these limits.
OPTIONS = Options(frame_bytes_max=65 * MiB, queue_bytes_max=128 * MiB, waiting_bytes_max=128 * MiB)

DIAL_PAUSE = 0.05

Ended = Callable[[OncecastError], None]  # called when the session has ended
Limited = Callable[[int], None]  # called with the maximum batch size of the nodes


class ClientLink(Link):
    """A link to a node that carries messages both ways."""

    def __init__(
        self,
        wires: Wires,
        identity: Identity,
        peer: NodeId,
        down: Down,
        trust: Trust,
        *,
        transport: ClientTransport,
    ) -> None:
        super().__init__(wires, identity, peer, down, trust)
        self._transport = transport
        self.problem = Problem()  # why the last connection failed
        self.refused: Refused | None = None
        self.batch_bytes_max = 0  # largest batch that the node accepts
        self._message_bytes = 0  # bytes of all messages sent and received
        self.linked: asyncio.Future[None] = wires.loop.create_future()

    async def _greet(self, connection: Connection, ask: Ask) -> None:
        if self._transport.login.node:
            self._check_certificate(connection)
        welcome = await self._log_in(ask)
        self._transport.name, self.batch_bytes_max = welcome.you, welcome.batch_bytes_max
        self._transport.limit()

    async def _log_in(self, ask: Ask) -> Welcome:
        login, identity, secret = self._transport.login, self._identity, self._trust.secret
        login.check_exposure(self.peer, tls=self._trust.tls is not None)
        exchange = login.exchange()
        hello = Hello(
            VERSION,
            identity.cluster,
            CLIENT,
            self._transport.name,
            self.peer,
            identity.incarnation,
            login.token or "",
            exchange.first() if exchange else "",
            b"" if secret is None else random_bytes(NONCE_BYTES),
            login.node,
            login.acts_for,
        )
        if exchange is None:
            answer = await introduce(hello, secret, ask)
        else:
            answer = await ask(hello)
            if isinstance(answer, Challenge):
                proof = await asyncio.to_thread(exchange.final, answer.login)
                answer = await ask(Proof(proof))
        match answer:
            case Welcome():
                if exchange is not None:
                    exchange.verify(answer.login)
                if login.acts_for not in ("", answer.principal):
                    raise Refused(
                        f"{self.peer} cannot let a client act for a user", "upgrade the node"
                    )
                return answer
            case Refusal():
                raise turned_down(answer)
            case _:
                raise Refused(
                    f"{self.peer} answered a Hello with a {type(answer).__name__}, so it is not "
                    "a node"
                )

    def send(self, message: bytes) -> None:
        self._message_bytes += HEADER_BYTES + len(message)
        super().send(message)

    @property
    def moved(self) -> int:
        """Return the message bytes that crossed the link in both directions, without pings."""
        connection, moved = self._connection, self._message_bytes - self.unsent_bytes
        if connection is None:
            return moved
        return moved - connection.in_kernel + connection.framer.unfinished

    def _dial_in_time(self) -> None:
        if not self._transport.over:
            super()._dial_in_time()

    def _up(self, connection: Connection) -> None:
        super()._up(connection)
        if not self.linked.done():
            self.linked.set_result(None)

    def _unreachable(self, error: Exception) -> None:
        self.problem = problem_of(error, tls=self._trust.tls is not None)
        super()._unreachable(error)
        self.refused = error if isinstance(error, Refused) else None
        if self.refused and self.peer in self._transport.named:
            self._transport.end(told(self.refused, self.peer))

    def frame(self, kind: int, body: Buffer) -> None:
        if kind == MESSAGE:
            self._message_bytes += HEADER_BYTES + len(body)
            try:
                message = self._transport.codec.decode(body)
            except Malformed as error:
                self._wires.incidents.report("malformed", peer=self.peer, reason=error)
                return
            self._wires.stats.messages_in += 1
            self._transport.deliver(self.peer, message)
        elif kind == GREETING:
            GREETINGS.decode(body)  # another client has taken over the name
            self._transport.end(Fenced().within(f"client {self._transport.name!r}"))
        elif kind == BYE and self._connection is not None:
            self._connection.close("the node is stopping")
        elif kind != PONG:
            raise OutOfPlace(f"the node sent a frame of kind {kind}, which nodes must not send")


class ClientTransport(Transport):
    """Dials the nodes that the session watches. Accepts no connections."""

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
        trust: Trust,
        login: Login,
    ) -> None:
        super().__init__(
            NOWHERE, codec, deliver=deliver, down=down, options=options, stats=stats, trust=trust
        )
        self.name = name  # if empty, the node assigns one (SVC-8)
        self.named = named  # nodes that the application named
        self.login = login
        self.codec, self.deliver, self._limited = codec, deliver, limited
        self._ended, self.over = ended, False
        self._looking = asyncio.create_task(self._look())

    def end(self, why: OncecastError) -> None:
        """End the session and stop dialing. Dialing again would take the name back."""
        self.over = True
        self._ended(why)

    def limit(self) -> None:
        """Report the lowest batch limit of all known nodes. A batch may go to any of them."""
        links = [link for link in self._links.values() if isinstance(link, ClientLink)]
        limits = [link.batch_bytes_max for link in links if link.batch_bytes_max]
        if limits:
            self._limited(min(limits))

    def moved(self, peer: NodeId) -> int:
        """Return the bytes that crossed the link to `peer` in both directions."""
        return self.link(peer).moved

    def _link(self, peer: NodeId) -> Link:
        return self._links.get(peer) or self.link(peer)

    def link(self, peer: NodeId) -> ClientLink:
        link = self._links.get(peer)
        if link is None:
            link = self._links[peer] = ClientLink(
                self._wires, self.identity, peer, self._down, self._trust, transport=self
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
        login: Login,
        secret: ClusterSecret | None,
        cluster: str,
        connect_timeout: float,
        busy_poll: float = 0.0,
    ) -> None:
        options = replace(OPTIONS, cluster=cluster, busy_poll=busy_poll)
        super().__init__(
            stack,
            me=session.me,
            journal=journal,
            on_event=on_event,
            tls=tls,
            secret=secret,
            options=options,
        )
        self._session, self._report_end, self._limited = session, ended, limited
        self._connect_timeout, self._login = connect_timeout, login

    async def __aenter__(self) -> Self:
        """Connect, then start the session under the name that the node confirmed."""
        self._prepare()
        transport = ClientTransport(
            self._session.producer,
            self._session.entry.nodes,
            Codec(tuple(self.stack.wiring.receiver)),
            deliver=partial(self._input, self.stack.receive),
            down=partial(self._input, self.stack.down),
            ended=self._report_end,
            limited=self._limited,
            options=self.options,
            stats=self.stats,
            trust=self._trust,
            login=self._login,
        )
        self._attach(transport)
        try:
            node = await self._dial(transport)
        except BaseException:
            await transport.close(0.0)
            raise
        self.when_ended(self._broke)
        self._session.connected(node, transport.name)
        self._input(self.stack.start)
        return self

    async def _dial(self, transport: ClientTransport) -> NodeId:
        """Return the first node that accepts a connection.

        Raise an error if a node refuses the client, or if no node answers in time.
        """
        give_up = self._loop.time() + self._connect_timeout
        links = [transport.link(node) for node in self._session.entry.nodes]
        while not any(link.linked.done() for link in links):
            for link in links:
                link.watch()
            refused = [link for link in links if link.refused]
            for link in refused:
                if isinstance(link.refused, NotAuthenticated):
                    raise told(link.refused, link.peer)
            if refused or self._loop.time() >= give_up:
                problems = {link.peer: link.problem for link in links}
                raise not_connected(problems, refused=bool(refused))
            await asyncio.wait(
                [link.linked for link in links],
                timeout=DIAL_PAUSE,
                return_when=asyncio.FIRST_COMPLETED,
            )
        first = next(link for link in links if link.linked.done())
        for link in links:
            link.watched = link is first
        return first.peer

    def moved(self, node: NodeId) -> int:
        transport = self._transport
        assert isinstance(transport, ClientTransport)
        return transport.moved(node)

    def send_now(self) -> None:
        """Write queued frames now instead of at the end of this event loop iteration."""
        self._transport.flush()

    def _broke(self, error: BaseException | None) -> None:
        if error is not None:
            self._report_end(broken("session", error))


def told(refused: Refused, node: NodeId) -> OncecastError:
    """Return the error to raise after this node refused the client."""
    if isinstance(refused, NotAuthenticated):
        return refused.within(node)
    return NotConnected(f"{node}: {refused}")


def broken(what: str, error: BaseException) -> OncecastError:
    """Return the error that every call raises after a disk failure or a bug."""
    if isinstance(error, StorageError):
        return StateUnusable(error.message, error.remedy)
    return OncecastError(f"the {what} failed: {error!r}")
