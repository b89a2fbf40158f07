"""The transport of a stack: outgoing links, accepted connections and their timeouts.

It calls `deliver(sender, message)`, and `down(peer)` when the link to a watched peer is lost or
cannot be established. Both run as separate event loop callbacks, never within a call to the
transport. The exception is `send`, which calls `down` when a queue overflows.

Each stack in a process has a transport. The primary transport owns the listener.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from oncecast.kernel.codec import Codec
from oncecast.kernel.protocol import NodeId, Value
from oncecast.network.addresses import name_of, process_of, split
from oncecast.network.clients import PREFIX, Clients
from oncecast.network.connection import Connection, Session, Wires
from oncecast.network.entropy import random_id
from oncecast.network.handshake import CLIENT, PEER, Hello, Identity
from oncecast.network.links import Deliver, Down, Inbound, Link, hear
from oncecast.network.local import Accept, LocalLink, LocalStacks
from oncecast.network.options import Options, Stats
from oncecast.network.trust import Trust

if TYPE_CHECKING:
    from oncecast.network.listener import Listen, Listener

CLOSE_SECONDS = 1.0  # seconds for the loop to close dropped connections
LOOKED_AT_ONCE = 50  # number of connections to check per loop iteration

Item = TypeVar("Item")


class Transport:
    def __init__(
        self,
        me: NodeId,
        codec: Codec,
        *,
        deliver: Deliver,
        down: Down,
        options: Options,
        stats: Stats,
        trust: Trust,
        client_codec: Codec | None = None,  # None if clients are not accepted
        # The transport that owns the listener; None for the primary transport itself.
        primary: Transport | None = None,
    ) -> None:
        split(me)
        self._primary = primary
        if primary is None:
            self.identity = Identity(me, options.cluster, random_id())
            self._wires = Wires(options, stats)
        else:
            assert process_of(me) == primary.identity.me, (
                f"{me} is not in process {primary.identity.me}"
            )
            self.identity = replace(primary.identity, me=me)
            self._wires = primary._wires
        # All stacks that share the listener.
        self.stacks: LocalStacks = {} if primary is None else primary.stacks
        self._listener: Listener | None = None  # only the primary transport has one
        self.roles: dict[str, Accept] = {PEER: self._accept_peer}
        self.clients = Clients(self._wires, client_codec or Codec(()), deliver=deliver, down=down)
        if client_codec is not None:
            self.roles[CLIENT] = self._accept_client
        self._codec, self._deliver, self._down, self._trust = codec, deliver, down, trust
        self._links: dict[NodeId, Link] = {}
        self.local_links: dict[NodeId, LocalLink] = {}
        self._inbound: dict[NodeId, Inbound] = {}
        self.paused = False
        self._encoded: tuple[Value | None, bytes] = (None, b"")  # the last encoded message
        self._looking: asyncio.Task[None] | None = None

    async def open(self, listen: Listen) -> None:
        name = name_of(self.identity.me)
        assert name not in self.stacks, f"{self.identity.me} is already running"
        self.stacks[name] = self
        if self._primary is None:
            from oncecast.network.listener import Listener  # imported here: clients need none

            self._listener = Listener(self._wires, self.identity, self._trust, self.stacks)
            await self._listener.open(listen)
        self._looking = asyncio.create_task(self._look())

    # -- sending --

    def send(self, to: NodeId, message: Value) -> None:
        last, body = self._encoded
        if last is not message:  # a broadcast sends the same value to several peers
            body = self._codec.encode(message)
            self._encoded = (message, body)
        if len(body) > self._wires.options.frame_bytes_max:
            self._wires.incidents.report("too_long", peer=to, reason=self._describe(message, body))
            return
        self._wires.stats.messages_out += 1
        if to.startswith(PREFIX):
            self.clients.send(to, body)
        else:
            self._way(to).send(body)

    def watch(self, peer: NodeId) -> None:
        if peer.startswith(PREFIX):
            self.clients.watch(peer)
        else:
            self._way(peer).watch()

    def unwatch(self, peer: NodeId) -> None:
        if peer.startswith(PREFIX):
            self.clients.unwatch(peer)
        elif way := self._links.get(peer) or self.local_links.get(peer):
            way.watched = False

    def unsent_bytes(self, peer: NodeId) -> int:
        way = self._links.get(peer) or self.local_links.get(peer)
        return way.unsent_bytes if way else 0

    def flush(self) -> bool:
        """Write pending frames before the loop iteration ends. Return whether there were any."""
        return self._wires.flush()

    def _way(self, peer: NodeId) -> Link | LocalLink:
        return self._links.get(peer) or self.local_links.get(peer) or self._new_way(peer)

    def _new_way(self, peer: NodeId) -> Link | LocalLink:
        me = self.identity.me
        if peer == me or process_of(peer) != process_of(me):
            return self._link(peer)
        link = LocalLink(self._wires, self.stacks, me=me, peer=peer, down=self._down)
        self.local_links[peer] = link
        return link

    def _link(self, peer: NodeId) -> Link:
        link = self._links.get(peer)
        if link is None:
            link = Link(self._wires, self.identity, peer, self._down, self._trust)
            self._links[peer] = link
        return link

    def _describe(self, message: Value, body: bytes) -> str:
        return (
            f"{type(message).__name__} of {len(body)} bytes not sent (limit "
            f"{self._wires.options.frame_bytes_max}); raise frame_bytes_max on all nodes, or send "
            "smaller messages"
        )

    # -- receiving --

    def _accept_peer(self, connection: Connection, hello: Hello, principal: str) -> Session:
        self.identity.check_peer(hello)
        peer = NodeId(hello.sender)
        # A peer that dials again has dropped its old link, even if it still looks open here.
        if older := self._inbound.get(peer):
            older.connection.drop("replaced by a new connection from the peer")
        inbound = Inbound(self._wires, connection, peer, self._codec, self._deliver)
        self._inbound[peer] = inbound
        connection.switch(inbound, peer)
        connection.over.add_done_callback(lambda _: self._forget(peer, inbound))
        if self.paused:
            connection.pause()
        if peer in self._links:
            self._links[peer].hurry()
        return inbound

    def _accept_client(self, connection: Connection, hello: Hello, principal: str) -> Session:
        client = self.clients.accept(connection, hello, principal)
        if self.paused:
            connection.pause()
        return client

    def hear(self, sender: NodeId, body: bytes) -> None:
        hear(self._wires, self._codec, sender, body, self._deliver)

    def _forget(self, peer: NodeId, inbound: Inbound) -> None:
        if self._inbound.get(peer) is inbound:
            del self._inbound[peer]

    def pause(self) -> None:
        """Stop reading, so that the senders' queues fill up."""
        self.paused = True
        for inbound in self._readers():
            inbound.connection.pause()

    def resume(self) -> None:
        self.paused = False
        for inbound in self._readers():
            inbound.connection.resume()
        for link in self._links_here():
            link.carry_soon()

    def _readers(self) -> list[Inbound]:
        return [*self._inbound.values(), *self.clients.here.values()]

    def _links_here(self) -> list[LocalLink]:
        me = self.identity.me
        stacks = self.stacks.values()
        return [stack.local_links[me] for stack in stacks if me in stack.local_links]

    # -- timeouts --

    async def _look(self) -> None:
        options = self._wires.options
        pause = min(options.keepalive, options.frame_timeout, options.unused_after) / 4
        while True:
            await asyncio.sleep(pause)
            if self._primary is None:
                await in_slices(self._wires.connections, self._look_at)
            self._look_at_links(self._wires.loop.time())
            await in_slices(self.clients.here, self._check_login)

    def _look_at(self, connection: Connection) -> None:
        connection.overdue(self._wires.loop.time())

    def _check_login(self, client: NodeId) -> None:
        self.clients.check_login(client, self._trust.logins.valid)

    def _look_at_links(self, now: float) -> None:
        for peer, link in list(self._links.items()):
            if not link.look(now):
                del self._links[peer]
        for peer, local in list(self.local_links.items()):
            if not local.watched and not local.unsent_bytes:
                del self.local_links[peer]

    # -- closing --

    async def lock(self) -> None:
        """Stop accepting connections. Open connections stay open."""
        if self._listener is not None:
            await self._listener.close()
        if self._primary is not None and name_of(self.identity.me) in self.stacks:
            del self.stacks[name_of(self.identity.me)]
            for link in self._links_here():
                link.lost()

    async def close(self, drain: float) -> None:
        """Wait up to `drain` seconds for the send queues, then close all connections."""
        await self.lock()
        if self._looking is not None:
            self._looking.cancel()
        leaving = [connection for link in self._links.values() if (connection := link.leave())]
        leaving += self.clients.leave()
        self._links.clear()
        self.flush()
        if leaving and drain > 0:
            await asyncio.wait([connection.over for connection in leaving], timeout=drain)
        rest = list(self._wires.connections) if self._primary is None else self._open(leaving)
        for connection in rest:
            connection.drop("this node is stopping")
        if rest:
            await asyncio.wait([connection.over for connection in rest], timeout=CLOSE_SECONDS)

    def _open(self, leaving: list[Connection]) -> list[Connection]:
        """Return this stack's open connections. Other stacks keep theirs."""
        inbound = [inbound.connection for inbound in self._inbound.values()]
        return [each for each in (*leaving, *inbound) if not each.over.done()]


async def in_slices(items: Iterable[Item], look: Callable[[Item], None]) -> None:
    """Call `look` for thousands of items without blocking the loop for long."""
    for number, item in enumerate(list(items), 1):
        look(item)
        if number % LOOKED_AT_ONCE == 0:
            await asyncio.sleep(0)
