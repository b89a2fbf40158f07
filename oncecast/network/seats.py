"""A process's accepted connections, and how many each owner may have.

Peers have a separate limit. Clients share `connections_max`. If all connections are taken, the
owner with the most connections loses its newest one to an owner with fewer. This way, users and
hosts with many connections cannot lock out others.
"""

from __future__ import annotations

from oncecast.errors import Absent
from oncecast.network.addresses import network_of
from oncecast.network.connection import Connection
from oncecast.network.handshake import PEER
from oncecast.network.options import Options, Stats

USER, HOST = "user", "host"


def owner_of(principal: str, address: str) -> str:
    """Return the owner of a client's connection: its user, or its host if it has no login."""
    return f"{USER} {principal}" if principal else f"{HOST} {network_of(host_of(address))}"


def host_of(address: str) -> str:
    return address.rpartition(":")[0]


class Seats:
    def __init__(self, options: Options, stats: Stats) -> None:
        self._options, self._stats = options, stats
        self._peers: dict[Connection, None] = {}
        self._clients: dict[Connection, str] = {}  # the owner of each open connection
        self._owners: dict[str, dict[Connection, None]] = {}  # oldest first for each owner

    def __len__(self) -> int:
        return len(self._peers) + len(self._clients)

    def check_peers(self) -> None:
        """Raise Absent if the peer limit is reached."""
        limit = self._options.peers_max
        if len(self._peers) >= limit:
            raise self._full("from peers", limit, "peers_max")

    def make_space(self, owner: str) -> None:
        """Close another owner's connection if all are taken, or raise Absent."""
        options, taken = self._options, len(self._owners.get(owner, ()))
        kind = owner.partition(" ")[0]
        limit = options.user_connections_max if kind == USER else options.host_connections_max
        if limit and taken >= limit:
            raise self._full(f"from one {kind}", limit, f"{kind}_connections_max")
        if len(self._clients) < options.connections_max:
            return
        most = max(self._owners.values(), key=len, default={})
        if len(most) <= taken + 1:
            raise self._full("from clients", options.connections_max, "connections_max")
        newest = next(reversed(most))
        self._leave(newest)
        newest.fail(
            "crowded", "its owner has the most connections, and another owner needs a connection"
        )

    def _full(self, which: str, limit: int, setting: str) -> Absent:
        self._stats.crowded += 1
        return Absent(
            f"too many connections {which} (limit {limit})", f"try again later, or raise {setting}"
        )

    def take(self, connection: Connection, role: str, owner: str) -> None:
        """Count a connection until it is closed."""
        if role == PEER:
            self._peers[connection] = None
        else:
            self._clients[connection] = owner
            self._owners.setdefault(owner, {})[connection] = None
        connection.over.add_done_callback(lambda _: self._leave(connection))

    def _leave(self, connection: Connection) -> None:
        """Stop counting a connection, if it is still counted."""
        self._peers.pop(connection, None)
        owner = self._clients.pop(connection, None)
        if owner is not None:
            del self._owners[owner][connection]
            if not self._owners[owner]:
                del self._owners[owner]
