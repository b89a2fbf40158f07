"""Links to the nodes that the tables of this node name, and to no others."""

from __future__ import annotations

from oncecast.dht.member import Members
from oncecast.kernel.protocol import NodeId, Protocol


class Links:
    def __init__(self, protocol: Protocol, members: Members, enabled: bool) -> None:
        self._protocol, self._members, self._enabled = protocol, members, enabled

    def update(self) -> None:
        """Watch each neighbour and finger, and unwatch all other nodes."""
        if not self._enabled:
            return
        protocol, wanted = self._protocol, dict[NodeId, None]()
        for member in self._members:
            wanted.update((position.node, None) for position in member.known())
            if member.predecessor is not None:
                wanted[member.predecessor.node] = None
        wanted.pop(protocol.me, None)
        for node in [node for node in protocol.watched if node not in wanted]:
            protocol.unwatch(node)
        for node in wanted:
            protocol.watch(node)
