"""Pass on a user's SCRAM login to a node, which checks it and names the principal.

A front end uses it for its own clients. The user's password does not reach the front end.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, NamedTuple

from oncecast.client.login import NONCE_BYTES
from oncecast.errors import NetworkError, NotConnected, Refused
from oncecast.kernel.protocol import NodeId, Value
from oncecast.network.addresses import split
from oncecast.network.connection import Connection, Greeting, Wires
from oncecast.network.handshake import (
    CLIENT,
    VERSION,
    Challenge,
    Hello,
    Proof,
    Refusal,
    Welcome,
    turned_down,
)
from oncecast.network.options import Options, Stats
from oncecast.security.scram import ClientExchange

if TYPE_CHECKING:
    from oncecast.client.options import ClientOptions


class Proved(NamedTuple):
    """The node's answer to a valid proof."""

    principal: str
    login: str  # the SCRAM server-final message


class LoginRelay:
    """One login of a user. Call `begin`, then `prove`, and `close` in any case."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._wires = Wires(Options(cluster=options.cluster), Stats())
        self._connection: Connection | None = None
        self._greeting: Greeting | None = None

    async def begin(self, first: str) -> str:
        """Send a SCRAM client-first message to a node, and return the node's challenge."""
        problem: Exception | None = None
        for address in self._options.addresses:
            try:
                async with asyncio.timeout(self._options.connect_timeout):
                    return await self._challenge(NodeId(address), first)
            except Refused:
                raise
            except (OSError, NetworkError) as error:  # includes TimeoutError
                self.close()
                problem = error
        raise NotConnected(f"no node answered the login: {problem!r}")

    async def prove(self, final: str) -> Proved:
        """Send a SCRAM client-final message. Raise NotAuthenticated if the node rejects it."""
        async with asyncio.timeout(self._options.connect_timeout):
            match await self._ask(Proof(final)):
                case Welcome(login=login, principal=principal) if principal:
                    return Proved(principal, login)
                case Welcome():
                    raise Refused("the node cannot check logins for a front end", "upgrade it")
                case Refusal() as refusal:
                    raise turned_down(refusal)
                case other:
                    raise Refused(f"the node answered a Proof with a {type(other).__name__}")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.abandon("the login has ended")

    async def _challenge(self, node: NodeId, first: str) -> str:
        self._greeting = Greeting(self._wires)
        self._connection = connection = Connection(self._wires, self._greeting, node)
        host, port = split(node)
        tls = self._options.tls
        await self._wires.loop.create_connection(
            lambda: connection,
            host,
            port,
            ssl=tls.client if tls else None,
            server_hostname=host if tls else None,
        )
        number = secrets.randbits(63)
        answer = await self._ask(
            Hello(VERSION, self._options.cluster, CLIENT, "", node, number, login=first)
        )
        match answer:
            case Challenge(login) if login:
                return login
            case Refusal():
                raise turned_down(answer)
            case _:
                raise Refused(f"{node} answered a login with a {type(answer).__name__}")

    async def _ask(self, greeting: Value) -> Value:
        assert self._greeting is not None
        assert self._connection is not None
        return await self._greeting.ask(self._connection, greeting)


async def check_password(options: ClientOptions, user: str, password: str) -> str:
    """Log in at a node, and return the user's principal, or raise NotAuthenticated."""
    exchange = ClientExchange(user, password, secrets.token_urlsafe(NONCE_BYTES))
    relay = LoginRelay(options)
    try:
        challenge = await relay.begin(exchange.first())
        final = await asyncio.to_thread(exchange.final, challenge)
        proved = await relay.prove(final)
        exchange.verify(proved.login)
        return proved.principal
    finally:
        relay.close()
