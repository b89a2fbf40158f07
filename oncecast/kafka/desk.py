"""The front end of one user: a client session that acts for the user, and its connections."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import msgspec

from oncecast.client.driver import ClientRuntime
from oncecast.client.options import ClientOptions
from oncecast.client.session.client import ClientSession
from oncecast.errors import OncecastError
from oncecast.kafka.frontend import FrontEnd
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack

Address = tuple[str, int]


class Terms(NamedTuple):
    """The settings that all users of a front end share."""

    options: ClientOptions
    advertised: Address
    auto_create: bool
    process: str  # the node whose process this is, or "" in a process of its own


class Desk:
    """Serves the connections of one user. `user` is empty for connections without a login."""

    def __init__(
        self,
        user: str,
        terms: Terms,
        heard: Callable[[Value], None],
        ended: Callable[[Desk, OncecastError], None],
    ) -> None:
        self.user = user
        self.connections: set[int] = set()
        self.unused_since = 0.0
        self._terms, self._heard, self._ended = terms, heard, ended
        self._runtime = self._assembled()
        self._started = asyncio.ensure_future(self._runtime.__aenter__())

    async def ready(self) -> None:
        """Wait until the session is connected. Raise the error if it cannot connect."""
        await asyncio.shield(self._started)

    def ask(self, request: Value) -> None:
        self._runtime.request(request)

    async def close(self) -> None:
        if not self._started.done():
            self._started.cancel()
        await asyncio.gather(self._started, return_exceptions=True)
        if not self._started.cancelled() and self._started.exception() is None:
            await self._runtime.__aexit__(None, None, None)

    def _assembled(self) -> ClientRuntime:
        rng, options = Random(), self._terms.options
        if self.user:
            options = msgspec.structs.replace(options, acts_for=self.user)
        first, *others = options.begin_at(rng)
        me = NodeId(f"client/{secrets.token_hex(8)}")
        session = ClientSession(
            me,
            rng,
            node=NodeId(first),
            others=tuple(map(NodeId, others)),
            producer=options.name or "",
            incarnation=secrets.token_hex(16),
        )
        host, port = self._terms.advertised
        front = FrontEnd(
            me,
            rng,
            host=host,
            port=port,
            auto_create=self._terms.auto_create,
            user=self.user,
            process=self._terms.process,
            node_of=session.node_of,
        )
        return ClientRuntime(
            Stack([session, front]),
            session,
            journal=None,
            on_event=self._heard,
            ended=lambda error: self._ended(self, error),
            limited=lambda _: None,
            tls=options.tls,
            login=options.login,
            secret=options.secret,
            cluster=options.cluster,
            connect_timeout=options.connect_timeout,
        )
