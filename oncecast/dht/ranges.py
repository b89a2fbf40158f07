"""The range of keys that each position owns, and the links to its neighbours."""

from __future__ import annotations

from oncecast.dht.events import RangeChanged
from oncecast.dht.identifiers import Key, Position
from oncecast.dht.member import Member, Members
from oncecast.kernel.protocol import NodeId, Protocol


class Ranges:
    """Notifies the layer above when the key range of a position has changed."""

    def __init__(self, protocol: Protocol, heard_within: float) -> None:
        self._protocol = protocol
        self._heard_within = heard_within  # seconds within which a live predecessor notifies us
        self._announced: dict[Key, Key | None] = {}

    def set_predecessor(self, member: Member, new: Position | None) -> None:
        if new != member.predecessor:
            member.predecessor = new
            self.hear_predecessor(member)

    def hear_predecessor(self, member: Member) -> None:
        """Record that the predecessor is alive now."""
        member.heard_at, member.unheard = self._protocol.now, False
        self.announce(member)

    def check_predecessor(self, member: Member) -> None:
        """Set `unheard` if no predecessor has notified `member` for too long."""
        member.unheard = self._protocol.now - member.heard_at > self._heard_within
        self.announce(member)

    def announce(self, member: Member) -> None:
        """Emit RangeChanged if the range differs from the last announced range."""
        at, low = member.position.id, member.low
        if self._announced.get(at, Key(b"")) != low:
            self._announced[at] = low
            self._protocol.emit(RangeChanged(at, low))


class Links:
    """Keeps links to exactly the nodes named in this node's tables."""

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
