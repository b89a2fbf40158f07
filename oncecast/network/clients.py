"""A node's client connections.

A client dials the node, and its connection carries messages both ways. A client may send only
client message types. The stack knows it as the node `client/NAME`, which is not a valid peer
address. A new connection with the same name replaces the old one, because the node may not have
noticed that the old one is dead. The old client gets a Refusal.
"""

from __future__ import annotations

from collections.abc import Callable

from oncecast.errors import Refused
from oncecast.kernel.codec import Codec
from oncecast.kernel.protocol import NodeId
from oncecast.network.connection import Connection, Leaving, Wires
from oncecast.network.entropy import random_hex
from oncecast.network.framing import BYE, GREETING, MESSAGE
from oncecast.network.handshake import GREETINGS, Hello, Refusal
from oncecast.network.links import Deliver, Down, Inbound
from oncecast.network.seats import owner_of
from oncecast.security.principals import ANONYMOUS
from oncecast.security.values import token_id

PREFIX = "client/"
NAME_BYTES_MAX = 255


class Clients:
    """The connected clients, by node id."""

    def __init__(self, wires: Wires, codec: Codec, *, deliver: Deliver, down: Down) -> None:
        self._wires, self._codec, self._deliver, self._down = wires, codec, deliver, down
        self.here: dict[NodeId, Client] = {}

    def accept(self, connection: Connection, hello: Hello, principal: str) -> Client:
        name = hello.sender or assigned(principal)
        size = len(name.encode(errors="replace"))
        if size > NAME_BYTES_MAX:
            raise Refused(
                f"the client name {name[:40]!r}... is {size} bytes long (limit {NAME_BYTES_MAX})",
                "choose a shorter name",
            )
        if not name.isprintable():
            raise Refused(
                f"the client name {name[:40]!r} contains unprintable characters", "remove them"
            )
        id = NodeId(PREFIX + name)
        if older := self.here.get(id):
            older.oust(
                f"another connection has taken over the name {name!r}; give each client its own "
                "name"
            )
        client = self.here[id] = Client(
            self._wires, connection, id, self._codec, self._deliver, self._gone, principal
        )
        client.token, client.address = token_id(hello.token), connection.name
        connection.switch(client, id)
        connection.take_turns(owner_of(principal, client.address))
        return client

    def principal_of(self, id: NodeId) -> str:
        """Return the principal of a connected client, or "" if it is anonymous."""
        client = self.here.get(id)
        return client.principal if client is not None else ANONYMOUS

    def address_of(self, id: NodeId) -> str:
        """Return the host:port of a connected client, or "" if it is not connected."""
        client = self.here.get(id)
        return client.address if client is not None else ""

    def check_login(self, id: NodeId, valid: Callable[[str, str], bool]) -> None:
        """Close a client's connection if its user was removed or its token expired."""
        client = self.here.get(id)
        if client is None:
            return
        own = valid(client.agent or client.principal, client.token)
        if not own or (client.agent and not valid(client.principal, "")):
            reason = "the login is no longer valid"
            self._wires.incidents.report("refused", peer=id, reason=reason)
            client.dismiss(reason)

    def send(self, id: NodeId, body: bytes) -> None:
        """Send a message to a client. Drop the message if the client is not connected."""
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
        """Ask all clients to close. Return their connections, for the caller to await `over`."""
        connections = [client.connection for client in self.here.values()]
        for connection in connections:
            connection.switch(Leaving())
            connection.send(BYE)
        self.here.clear()
        return connections

    def _gone(self, client: Client) -> None:
        if self.here.get(client.id) is client:
            del self.here[client.id]
            if client.watched:
                self._down(client.id)


class Client(Inbound):
    """The session of one client connection."""

    def __init__(
        self,
        wires: Wires,
        connection: Connection,
        id: NodeId,
        codec: Codec,
        deliver: Deliver,
        gone: Callable[[Client], None],
        principal: str,
    ) -> None:
        super().__init__(wires, connection, id, codec, deliver)
        self.id, self.principal, self.watched = id, principal, False
        self.agent = ""  # the principal that logged in, if it acts for `principal`
        self.token = ""  # id of the token that the client logged in with
        self.address = ""  # host:port
        self._gone = gone

    @property
    def name(self) -> str:
        return self.id.removeprefix(PREFIX)

    def oust(self, reason: str) -> None:
        self._gone(self)
        self.connection.switch(Leaving())
        self.connection.send(GREETING, GREETINGS.encode(Refusal(reason)))
        self.connection.close(reason)

    def dismiss(self, reason: str) -> None:
        """Close the connection. The client may dial and log in again."""
        self._gone(self)
        self.connection.switch(Leaving())
        self.connection.close(reason)

    def lost(self, reason: str) -> None:
        self._gone(self)


def assigned(principal: str) -> str:
    """Return a new client name that the principal may use."""
    return f"{principal}.{random_hex(8)}" if principal else random_hex(8)
