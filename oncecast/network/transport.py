"""Messages between nodes: links out, connections in, one look at all of them now and then.

It asks two functions of its owner: `deliver(sender, message)`, and `down(peer)` for a watched peer
whose link is gone or could not be made. Both are called from the loop, never from inside a call to
the transport that is under way, save for `down`: a queue may overflow while it is written.

Stacks that share a door have a transport each: the first one listens for all, its tenants.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace

from oncecast.kernel.codec import Codec
from oncecast.kernel.protocol import NodeId, Value
from oncecast.network.addresses import home, name_of, split
from oncecast.network.clients import PREFIX, Clients
from oncecast.network.connection import Connection, Session, Wires
from oncecast.network.handshake import CLIENT, PEER, Hello, Identity
from oncecast.network.links import Deliver, Down, Inbound, Link, hear
from oncecast.network.listener import Listen, Listener
from oncecast.network.options import Options, Stats
from oncecast.network.rooms import Accept, Passage
from oncecast.network.tls import Tls, check_certificate

CLOSE_SECONDS = 1.0  # for the loop to close what we have dropped; it takes a turn or two


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
        tls: Tls | None = None,
        client_codec: Codec | None = None,  # without one, no clients are let in
        landlord: Transport | None = None,  # whose door it shares, with all connections' Wires
    ) -> None:
        split(me)
        self._landlord = landlord
        if landlord is None:
            self.identity = Identity(me, options.cluster, secrets.randbits(63))
            self._wires = Wires(options, stats)
            self.listener = Listener(self._wires, self.identity, tls)
        else:
            assert home(me) == landlord.identity.me, f"{me} is not behind the door of its landlord"
            self.identity = replace(landlord.identity, me=me)
            self._wires, self.listener = landlord._wires, landlord.listener
        self.roles: dict[str, Accept] = {PEER: self._accept_peer}
        self.clients = Clients(self._wires, client_codec or Codec(()), deliver=deliver, down=down)
        if client_codec is not None:
            self.roles[CLIENT] = self._accept_client
        self._codec, self._deliver, self._down, self._tls = codec, deliver, down, tls
        self._links: dict[NodeId, Link] = {}
        self.passages: dict[NodeId, Passage] = {}
        self._inbound: dict[NodeId, Inbound] = {}
        self.paused = False
        self._encoded: tuple[Value | None, bytes] = (None, b"")  # the last message
        self._looking: asyncio.Task[None] | None = None

    async def open(self, listen: Listen, *, insecure: bool = False) -> None:
        rooms, name = self.listener.rooms, name_of(self.identity.me)
        assert name not in rooms, f"{self.identity.me} is there already"
        rooms[name] = self
        if self._landlord is None:
            await self.listener.open(listen, insecure=insecure)
        self._looking = asyncio.create_task(self._look())

    # -- out --

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
        elif way := self._links.get(peer) or self.passages.get(peer):
            way.watched = False

    def unsent_bytes(self, peer: NodeId) -> int:
        way = self._links.get(peer) or self.passages.get(peer)
        return way.unsent_bytes if way else 0

    def flush(self) -> bool:
        """Write what was sent without waiting for the end of the turn; whether there was any."""
        return self._wires.flush()

    def _way(self, peer: NodeId) -> Link | Passage:
        return self._links.get(peer) or self.passages.get(peer) or self._new_way(peer)

    def _new_way(self, peer: NodeId) -> Link | Passage:
        me, rooms = self.identity.me, self.listener.rooms
        if peer == me or home(peer) != home(me):
            return self._link(peer)
        passage = Passage(self._wires, rooms, me=me, peer=peer, down=self._down)
        self.passages[peer] = passage
        return passage

    def _link(self, peer: NodeId) -> Link:
        link = self._links.get(peer)
        if link is None:
            link = Link(self._wires, self.identity, peer, self._down, self._tls)
            self._links[peer] = link
        return link

    def _describe(self, message: Value, body: bytes) -> str:
        return (
            f"a {type(message).__name__} of {len(body)} bytes is not sent: raise frame_bytes_max "
            "on all nodes, or send less at once"
        )

    # -- in --

    def _accept_peer(self, connection: Connection, hello: Hello) -> Session:
        self.identity.check_peer(hello)
        if self._tls is not None:
            host, _ = split(hello.sender)
            check_certificate(connection.peer_certificate(), host, hello.sender)
        peer = NodeId(hello.sender)
        # A peer dials anew when it has given up its old link, which may not have closed here yet.
        if older := self._inbound.get(peer):
            older.connection.drop("its peer has dialled anew")
        connection.name = peer
        inbound = Inbound(self._wires, connection, peer, self._codec, self._deliver)
        self._inbound[peer] = inbound
        connection.over.add_done_callback(lambda _: self._forget(peer, inbound))
        if self.paused:
            connection.pause()
        if peer in self._links:
            self._links[peer].hurry()
        return inbound

    def _accept_client(self, connection: Connection, hello: Hello) -> Session:
        client = self.clients.accept(connection, hello)
        if self.paused:
            connection.pause()
        return client

    def hear(self, sender: NodeId, body: bytes) -> None:
        hear(self._wires, self._codec, sender, body, self._deliver)

    def _forget(self, peer: NodeId, inbound: Inbound) -> None:
        if self._inbound.get(peer) is inbound:
            del self._inbound[peer]

    def pause(self) -> None:
        """Read nothing more for now: the senders' kernels, then their queues fill up."""
        self.paused = True
        for inbound in self._readers():
            inbound.connection.pause()

    def resume(self) -> None:
        self.paused = False
        for inbound in self._readers():
            inbound.connection.resume()
        for passage in self._passages_here():
            passage.carry_soon()

    def _readers(self) -> list[Inbound]:
        return [*self._inbound.values(), *self.clients.here.values()]

    def _passages_here(self) -> list[Passage]:
        me = self.identity.me
        rooms = self.listener.rooms.values()
        return [room.passages[me] for room in rooms if me in room.passages]

    # -- time --

    async def _look(self) -> None:
        options = self._wires.options
        pause = min(options.keepalive, options.frame_timeout, options.unused_after) / 4
        while True:
            await asyncio.sleep(pause)
            self._look_once(self._wires.loop.time())

    def _look_once(self, now: float) -> None:
        if self._landlord is None:
            for connection in list(self._wires.connections):
                connection.overdue(now)
        for peer, link in list(self._links.items()):
            if not link.look(now):
                del self._links[peer]
        for peer, passage in list(self.passages.items()):
            if not passage.watched and not passage.unsent_bytes:
                del self.passages[peer]

    # -- the end --

    async def lock(self) -> None:
        """Let nobody in any more; who is in may stay."""
        if self._landlord is None:
            await self.listener.close()
        elif self.listener.rooms.pop(name_of(self.identity.me), None):
            for passage in self._passages_here():
                passage.lost()

    async def close(self, drain: float) -> None:
        """Give the queues `drain` seconds to empty, then close all there is."""
        await self.lock()
        if self._looking is not None:
            self._looking.cancel()
        leaving = [connection for link in self._links.values() if (connection := link.leave())]
        leaving += self.clients.leave()
        self._links.clear()
        self.flush()
        if leaving and drain > 0:
            await asyncio.wait([connection.over for connection in leaving], timeout=drain)
        rest = list(self._wires.connections) if self._landlord is None else self._open(leaving)
        for connection in rest:
            connection.drop("this node stops")
        if rest:
            await asyncio.wait([connection.over for connection in rest], timeout=CLOSE_SECONDS)

    def _open(self, leaving: list[Connection]) -> list[Connection]:
        """Of a tenant's own; those of its landlord and the other tenants stay."""
        inbound = [inbound.connection for inbound in self._inbound.values()]
        return [each for each in (*leaving, *inbound) if not each.over.done()]
