"""Clients of a node: they dial in, are never dialled, and their connection is used both ways.

A client speaks the vocabulary of clients and no other: what is for peers cannot come from it. To
the stack it is the node `client/NAME`, which no address of a peer can be. A newer connection of the
same name takes over, because the older one may be dead without our knowing; should it live, it is
told.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from oncecast.kernel.codec import Codec
from oncecast.kernel.errors import Refused
from oncecast.kernel.protocol import NodeId
from oncecast.network.connection import Connection, Leaving, Wires
from oncecast.network.framing import BYE, GREETING, MESSAGE
from oncecast.network.handshake import GREETINGS, Hello, Refusal
from oncecast.network.links import Deliver, Down, Inbound

PREFIX = "client/"
NAME_BYTES_MAX = 255


class Clients:
    """Who is here, by its id in the stack."""

    def __init__(self, wires: Wires, codec: Codec, *, deliver: Deliver, down: Down) -> None:
        self._wires, self._codec, self._deliver, self._down = wires, codec, deliver, down
        self.here: dict[NodeId, Client] = {}

    def accept(self, connection: Connection, hello: Hello) -> Client:
        name = hello.sender or secrets.token_hex(8)
        if len(name.encode(errors="replace")) > NAME_BYTES_MAX or not name.isprintable():
            raise Refused(
                f"a client's name is 1 to {NAME_BYTES_MAX} bytes of printable text, not "
                f"{name[:40]!r}: choose another, or none and be given one"
            )
        id = NodeId(PREFIX + name)
        if older := self.here.get(id):
            older.oust(f"a newer connection goes by the name {name!r}: give each its own")
        connection.name = id
        client = self.here[id] = Client(
            self._wires, connection, id, self._codec, self._deliver, self._gone
        )
        return client

    def send(self, id: NodeId, body: bytes) -> None:
        """To whoever is here; what is for somebody who has left is dropped."""
        if id in self.here:
            self.here[id].connection.send(MESSAGE, body)
        else:
            self._wires.stats.bytes_dropped += len(body)

    def watch(self, id: NodeId) -> None:
        if id in self.here:
            self.here[id].watched = True
        else:
            self._wires.loop.call_soon(self._down, id)

    def unwatch(self, id: NodeId) -> None:
        if id in self.here:
            self.here[id].watched = False

    def leave(self) -> list[Connection]:
        """Say goodbye: each closes when it has read everything, and is `over` then."""
        connections = [client.connection for client in self.here.values()]
        for connection in connections:
            connection.session = Leaving()
            connection.send(BYE)
        self.here.clear()
        return connections

    def _gone(self, client: Client) -> None:
        if self.here.get(client.id) is client:
            del self.here[client.id]
            if client.watched:
                self._down(client.id)


class Client(Inbound):
    """The session of one connection."""

    def __init__(
        self,
        wires: Wires,
        connection: Connection,
        id: NodeId,
        codec: Codec,
        deliver: Deliver,
        gone: Callable[[Client], None],
    ) -> None:
        super().__init__(wires, connection, id, codec, deliver)
        self.id, self.watched = id, False
        self._gone = gone

    @property
    def name(self) -> str:
        return self.id.removeprefix(PREFIX)

    def oust(self, reason: str) -> None:
        self._gone(self)
        self.connection.session = Leaving()
        self.connection.send(GREETING, GREETINGS.encode(Refusal(reason)))
        self.connection.close(reason)

    def lost(self, reason: str) -> None:
        self._gone(self)
