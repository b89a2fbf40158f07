"""The predecessor of each position, and so the range of keys that it owns."""

from __future__ import annotations

from oncecast.dht.events import RangeChanged
from oncecast.dht.identifiers import Key, Position
from oncecast.dht.member import Member
from oncecast.kernel.protocol import Protocol


class Ranges:
    """Notifies the layer above when the range of a position has changed."""

    def __init__(self, protocol: Protocol, heard_within: float) -> None:
        self._protocol = protocol
        self._heard_within = heard_within  # seconds in which a live predecessor notifies us
        self._announced: dict[Key, Key | None] = {}

    def set_predecessor(self, member: Member, new: Position | None) -> None:
        if new != member.predecessor:
            member.predecessor = new
            self.hear_predecessor(member)

    def hear_predecessor(self, member: Member) -> None:
        """Note that the predecessor is alive now."""
        member.heard_at, member.unheard = self._protocol.now, False
        self.announce(member)

    def check_predecessor(self, member: Member) -> None:
        """Note whether no predecessor has notified `member` for long."""
        member.unheard = self._protocol.now - member.heard_at > self._heard_within
        self.announce(member)

    def announce(self, member: Member) -> None:
        """Emit RangeChanged if the range differs from the last one announced."""
        at, low = member.position.id, member.low
        if self._announced.get(at, Key(b"")) != low:
            self._announced[at] = low
            self._protocol.emit(RangeChanged(at, low))
