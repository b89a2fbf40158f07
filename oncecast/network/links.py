"""Links: one-way connections that carry messages from the dialling to the accepting node.

    Link       the sender: dials on demand, sends pings, reconnects
    Inbound    the receiver: decodes messages, answers pings

Messages over a link arrive in order and without gaps until the link is lost. Messages in flight are
then lost too, and protocols that watch the peer get `down` once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from random import Random

from oncecast.errors import Malformed, NetworkError, OutOfPlace, Refused
from oncecast.kernel.backoff import backoff
from oncecast.kernel.codec import Buffer, Codec
from oncecast.kernel.protocol import NodeId, Value
from oncecast.network.addresses import split
from oncecast.network.connection import Connection, Greeting, Leaving, Wires
from oncecast.network.entropy import random_bytes
from oncecast.network.framing import BYE, MESSAGE, PING, PONG
from oncecast.network.handshake import Ask, Identity, answer, introduce
from oncecast.network.incidents import line, logger
from oncecast.network.trust import Trust
from oncecast.security.meeting import NONCE_BYTES

Down = Callable[[NodeId], None]
Deliver = Callable[[NodeId, Value], None]


class Link:
    def __init__(
        self, wires: Wires, identity: Identity, peer: NodeId, down: Down, trust: Trust
    ) -> None:
        self.peer, self.watched = peer, False
        self._wires, self._identity, self._down, self._trust = wires, identity, down, trust
        self._connection: Connection | None = None
        self._waiting: list[bytes] = []  # messages for the next connection
        self._waiting_bytes = 0
        self._rng = Random()
        self._failures = 0  # consecutive failures
        self._retry_at = 0.0
        self._dial_at: asyncio.TimerHandle | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._used = True  # whether a message was sent since the last check
        self._used_at = self._up_at = self._pinged_at = wires.loop.time()

    # -- for the transport --

    def send(self, message: bytes) -> None:
        self._used = True
        if self._connection is not None:
            self._connection.send(MESSAGE, message)
            return
        limit = self._wires.options.waiting_bytes_max
        if self._waiting and self._waiting_bytes + len(message) > limit:
            self._wires.stats.bytes_dropped += len(message)
            return
        self._waiting.append(message)
        self._waiting_bytes += len(message)
        self._dial_in_time()

    @property
    def unsent_bytes(self) -> int:
        if self._connection is not None:
            return self._connection.unsent_bytes
        return self._waiting_bytes

    def watch(self) -> None:
        self.watched = True
        if self._connection is None:
            self._dial_in_time()

    def hurry(self) -> None:
        """Dial now, because the peer has just dialled us."""
        self._failures, self._retry_at = 0, 0.0
        if self._dial_at is not None:
            self._dial()

    def look(self, now: float) -> bool:
        """Send a ping if one is due. Return False if the link was unused and is now closed."""
        if self._used or self.watched:
            self._used, self._used_at = False, now
        if now - self._used_at > self._wires.options.unused_after:
            self.leave()
            return False
        if self._connection is not None and now - self._pinged_at >= self._wires.options.keepalive:
            self._connection.send(PING)
            self._pinged_at = now
        return True

    def leave(self) -> Connection | None:
        """Ask the peer to close. Return the connection to wait for, or None if there is none."""
        self._stop_dialling()
        self._drop_waiting()
        connection, self._connection = self._connection, None
        if connection is None:
            return None
        connection.switch(Leaving())
        connection.send(BYE)
        return connection

    # -- backoff, connect, handshake --

    def _dial_in_time(self) -> None:
        if self._dial_at is None and self._dialling is None:
            self._dial_at = self._wires.loop.call_at(self._retry_at, self._dial)

    def _dial(self) -> None:
        if self._dial_at is not None:
            self._dial_at.cancel()
            self._dial_at = None
        self._dialling = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        greeting = Greeting(self._wires)
        connection = Connection(self._wires, greeting, self.peer)
        try:
            async with asyncio.timeout(self._wires.options.handshake_timeout):
                await self._shake_hands(connection, greeting)
                self._dialling = None
                self._up(connection)
        except (OSError, NetworkError, UnicodeError) as error:
            self._dialling = None
            self._unreachable(error)
        finally:
            if self._connection is not connection:
                connection.abandon("no handshake")

    async def _shake_hands(self, connection: Connection, greeting: Greeting) -> None:
        host, port = split(self.peer)
        tls = self._trust.tls
        await self._wires.loop.create_connection(
            lambda: connection,
            host,
            port,
            ssl=tls.client if tls else None,
            server_hostname=host if tls else None,
        )
        await self._greet(connection, partial(greeting.ask, connection))

    async def _greet(self, connection: Connection, ask: Ask) -> None:
        secret = self._trust.secret
        self._check_certificate(connection)
        nonce = b"" if secret is None else random_bytes(NONCE_BYTES)
        hello = self._identity.hello(self.peer, nonce)
        answer(await introduce(hello, secret, ask), self.peer)

    def _check_certificate(self, connection: Connection) -> None:
        """Raise Refused if TLS identifies the nodes and this one has another node's certificate."""
        tls = self._trust.tls
        if tls is not None and tls.identifies:
            from oncecast.security.certificates import check_node  # only TLS needs it

            check_node(connection.peer_certificate(), split(self.peer)[0], self.peer)

    def _unreachable(self, error: Exception) -> None:
        incident = "refused" if isinstance(error, Refused) else "unreachable"
        cause = getattr(error, "strerror", None) or str(error)
        reason = cause or f"no answer within {self._wires.options.handshake_timeout} s"
        self._wires.incidents.report(incident, logging.INFO, peer=self.peer, reason=reason)
        self._gone()

    def _up(self, connection: Connection) -> None:
        if connection.ended:  # the link was lost after the Welcome
            raise NetworkError(connection.ended)
        connection.switch(self)
        connection.framer.trust(self._wires.options.frame_bytes_max)
        self._connection = connection
        self._up_at = self._pinged_at = self._wires.loop.time()
        self._wires.stats.linked += 1
        logger.info(line("linked", {"peer": self.peer}))
        for message in self._waiting:
            connection.send(MESSAGE, message)
        self._waiting.clear()
        self._waiting_bytes = 0

    # -- the session --

    def frame(self, kind: int, body: Buffer) -> None:
        if kind != PONG:
            raise OutOfPlace(f"the receiver of a one-way link sent a frame of kind {kind}")

    def lost(self, reason: str) -> None:
        connection, self._connection = self._connection, None
        assert connection is not None
        self._wires.stats.bytes_dropped += connection.unsent_bytes
        self._wires.incidents.report("lost", logging.INFO, peer=self.peer, reason=reason)
        if self._wires.loop.time() - self._up_at > self._wires.options.backoff_max:
            self._failures = 0
        self._gone()

    def _gone(self) -> None:
        self._drop_waiting()
        self._failures += 1
        # Full jitter, so that peers do not all dial a restarted node at the same moment.
        options = self._wires.options
        longest = backoff(self._failures - 1, options.backoff_min, options.backoff_max)
        wait = self._rng.uniform(0.0, longest)
        self._retry_at = self._wires.loop.time() + wait
        if self.watched:
            self.watched = False
            self._down(self.peer)

    def _drop_waiting(self) -> None:
        self._wires.stats.bytes_dropped += self._waiting_bytes
        self._waiting.clear()
        self._waiting_bytes = 0

    def _stop_dialling(self) -> None:
        if self._dial_at is not None:
            self._dial_at.cancel()
        if self._dialling is not None:
            self._dialling.cancel()
        self._dial_at = self._dialling = None


class Inbound:
    """The receiving end of a link."""

    def __init__(
        self, wires: Wires, connection: Connection, peer: NodeId, codec: Codec, deliver: Deliver
    ) -> None:
        self.connection = connection
        self._wires, self._peer, self._codec, self._deliver = wires, peer, codec, deliver

    def frame(self, kind: int, body: Buffer) -> None:
        if kind == MESSAGE:
            hear(self._wires, self._codec, self._peer, body, self._deliver)
        elif kind == PING:
            self.connection.send(PONG)
        elif kind == BYE:
            self.connection.close("closed by the peer")
        else:
            raise OutOfPlace(f"a peer sent a frame of kind {kind}, which peers must not send")

    def lost(self, reason: str) -> None:
        pass  # our own link to the peer detects its failure


def hear(wires: Wires, codec: Codec, peer: NodeId, body: Buffer, deliver: Deliver) -> None:
    try:
        message = codec.decode(body)
    except Malformed as error:  # the frame is intact, so the next one may be valid
        wires.incidents.report("malformed", peer=peer, reason=error)
        return
    wires.stats.messages_in += 1
    deliver(peer, message)
