"""The requests and events of a replica group, independent of its protocol (REP-3).

    Propose, Compact, Digest, Change, HandOver, Retire ↓
    Decided, LeaderChanged, StateWanted, Installed, Compare, Added, Removed, Suspected, Mended,
    Retired ↑
    and direct calls of the layers above: `applied`, `entry(slot)`, `leads(now)`, `nodes()`

A proposal may be decided more than once, or never, if its node crashes or no longer leads. So make
commands idempotent, and propose them again until they are decided.
"""

from __future__ import annotations

from typing import Protocol

from oncecast.kernel.protocol import NodeId, Value


class Propose(Value):
    """Request: append `value` to the log. `token` comes back with it, while this node leads."""

    token: int
    value: bytes


class Compact(Value):
    """Request: save `state` as the snapshot at `slot`. No slot before `needed` is read again."""

    slot: int
    needed: int
    state: tuple[bytes, ...]


class Digest(Value):
    """Request: compare this digest of the state at `slot` with those of the other replicas."""

    slot: int
    digest: bytes


class Change(Value, tag="Change"):
    """Request to the leader: add a node that has offered itself, or remove one, or both.

    `size` is the number of replicas from then on; 0 keeps it. `force` allows a size that tolerates
    fewer failures than it costs.
    """

    add: NodeId = NodeId("")
    remove: NodeId = NodeId("")
    size: int = 0
    force: bool = False


class HandOver(Value, tag="HandOver"):
    """Request to the leader: let `successor` lead."""

    successor: NodeId


class Retire(Value):
    """Request: this replica is about to stop. Let another replica lead, and never lead again."""


class Decided(Value):
    """`value` is decided at `slot`. Slots grow; `token` is -1 for proposals of other nodes."""

    slot: int
    value: bytes
    token: int = -1


class LeaderChanged(Value):
    """`leader` is "" if there is none. A new leader gets this once it has applied all slots."""

    leader: NodeId


class StateWanted(Value):
    """Another replica needs a snapshot: answer with Compact at once."""


class Installed(Value):
    """Replace the current state: `state` is the snapshot at `slot`."""

    slot: int
    state: tuple[bytes, ...]


class Compare(Value):
    """All replicas compare their states at `slot`: answer with Digest at once."""

    slot: int


class Added(Value):
    node: NodeId


class Removed(Value):
    node: NodeId


class Suspected(Value):
    """The leader has not heard from a member for the suspicion time, or hears from it again."""

    node: NodeId
    silent: bool


class Mended(Value):
    """An entry that could not be read is here again."""

    slot: int


class Retired(Value):
    """This replica may stop now. `leader` leads; "" means that no other replica can."""

    leader: NodeId


class Missing(LookupError):
    """An entry that this replica cannot read; it is being fetched from other replicas."""

    def __init__(self, slot: int) -> None:
        super().__init__(f"entry {slot} cannot be read here; it is being fetched from a replica")
        self.slot = slot


class Group(Protocol):
    """The direct calls of a replica."""

    @property
    def applied(self) -> int:
        """Return the last slot that is applied here."""
        ...

    def entry(self, slot: int) -> bytes:
        """Return the value of a slot that is not yet trimmed. Raise Missing if it is unreadable."""
        ...

    def leads(self, now: float) -> bool:
        """Return whether all acknowledged slots are applied here."""
        ...

    def follows(self, now: float) -> bool:
        """Return whether a leader was heard recently, and all that it reported is applied here."""
        ...

    def nodes(self) -> tuple[NodeId, ...]: ...


class StateMachine(Protocol):
    """Gets the contents of the log before the start: at most one snapshot, then values in order."""

    def install(self, slot: int, state: tuple[bytes, ...]) -> None: ...
    def learn(self, slot: int, value: bytes) -> None: ...
