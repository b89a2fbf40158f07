"""What the ring stack of a process and its replicas tell each other, and their application.

replica → ring     GroupFacts, WhoseKey, WhereIs ring → replica    KeyOwner, GroupFacts, GiveUp
process → process  WhoOwns, Owner                ring ↓ ↑          Leave; Seat, Unseat, Left
"""

from __future__ import annotations

from oncecast.dht.identifiers import Key, key_of
from oncecast.kernel.protocol import NodeId, Value


class GroupFacts(Value, tag="GroupFacts"):
    """A group as one of its replicas knows it. Of two that differ, the one with more `applied`."""

    group: str
    low: Key | None  # of its arc; the other end is its position
    leader: NodeId
    nodes: tuple[NodeId, ...]
    applied: int
    retired: bool = False  # once it owns nothing it is gone

    @property
    def gone(self) -> bool:
        return self.retired and self.low is None

    @property
    def owns_all(self) -> bool:
        return self.low == key_of(self.group)


class WhoseKey(Value, tag="WhoseKey"):
    """Who owns this?"""

    key: Key


class KeyOwner(Value, tag="KeyOwner"):
    """This group does; and so many processes make up the ring."""

    key: Key
    owner: GroupFacts
    processes: int


class WhereIs(Value, tag="WhereIs"):
    """What is known of this group? It may be elsewhere by now, or gone."""

    group: str


class RetireGroup(Value, tag="GiveUp"):
    """To a leader: this process leaves the ring, and what its group owns shall be others'."""


class WhoOwns(Value, tag="WhoOwns"):
    number: int
    key: Key


class Owner(Value, tag="Owner"):
    number: int
    owner: GroupFacts


class Seat(Value):
    """Event: run a replica of `group` here. Without `nodes` it founds the group."""

    group: str
    nodes: tuple[NodeId, ...]


class Leave(Value):
    """Request: give what the group of this process owns to others; then this process may go."""


class Left(Value):
    """Event: it owns nothing any more."""


class Unseat(Value):
    """Event: the replica of `group` here is not wanted, or its group is `gone`.

    Who has a vote may be asked for it again, perhaps by a decision that is not known here yet: what
    is on its disk must stay, unless the group is gone.
    """

    group: str
    gone: bool
