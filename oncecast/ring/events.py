"""Messages between a process's ring stack and its replicas, and events for the process.

replica → ring     GroupFacts, WhoseKey, WhoseTopic, WhereIs
ring → replica     KeyOwner, Owned, GroupFacts, RetireGroup
process → process  WhoOwns, Owner                ring ↓ ↑          Leave; Seat, Unseat, Left
"""

from __future__ import annotations

from oncecast.dht.identifiers import Key, key_of
from oncecast.kernel.protocol import NodeId, Value


class GroupFacts(Value, tag="GroupFacts"):
    """A group as seen by one of its replicas. Facts with a higher `applied` are newer."""

    group: str
    low: Key | None  # the low end of the group's arc; its high end is the group's own position
    leader: NodeId
    nodes: tuple[NodeId, ...]
    applied: int
    retired: bool = False  # whether the group is gone once it owns nothing

    @property
    def gone(self) -> bool:
        return self.retired and self.low is None

    @property
    def owns_all(self) -> bool:
        return self.low == key_of(self.group)


class WhoseKey(Value, tag="WhoseKey"):
    """Ask for the owner of a key."""

    key: Key


class WhoseTopic(Value, tag="WhoseTopic"):
    """Ask for the owner of a topic. The answer is Owned."""

    topic: str


class KeyOwner(Value, tag="KeyOwner"):
    """The owner of a key, and the number of processes in the ring."""

    key: Key
    owner: GroupFacts
    processes: int


class WhereIs(Value, tag="WhereIs"):
    """Ask for facts about a group whose replicas may have changed, or that may be gone."""

    group: str


class RetireGroup(Value, tag="GiveUp"):
    """Ask a leader to retire its group, because the process is leaving the ring."""


class WhoOwns(Value, tag="WhoOwns"):
    number: int
    key: Key


class Owner(Value, tag="Owner"):
    number: int
    owner: GroupFacts


class Seat(Value):
    """Event: run a replica of `group` in this process. `nodes` are the members of the group."""

    group: str
    nodes: tuple[NodeId, ...]


class Leave(Value):
    """Request: leave the ring. This process's group first exports everything it owns."""


class Left(Value):
    """Event: this process's group no longer owns anything, so the process may stop."""


class MoveWaits(Value):
    """Event: this group can import topics from `exporter` only at feature level `needed`."""

    exporter: str
    needed: int
    level: int


class Unseat(Value):
    """Event: stop the replica of `group`, because it is not needed or its group is `gone`.

    A decision that has not yet arrived may make the replica a voting member again. The replica's
    data must stay on disk unless the group is gone.
    """

    group: str
    gone: bool
