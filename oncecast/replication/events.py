"""The requests and events of a replica group, independent of its protocol (REP-3).

    Propose, Compact, Digest, Change, HandOver, Retire ↓
    Decided, LeaderChanged, StateWanted, Installed, Compare, Added, Removed, LevelRaised, NotSeated,
    Suspected, Mended, Retired ↑
    and methods that the layers above call: `applied`, `level`, `entry(slot)`, `leads(now)`,
    `nodes()`

A proposal may be decided more than once, or never, if its node crashes or no longer leads. Commands
must therefore be idempotent, and are proposed again until they are decided.
"""

from __future__ import annotations

from typing import Protocol

from oncecast.kernel.protocol import NodeId, Value


class Propose(Value):
    """Request: append `value` to the log. Decided returns `token` if this node still leads."""

    token: int
    value: bytes


class Compact(Value):
    """Request: save `state` as the snapshot at `slot`. Slots before `needed` may be dropped."""

    slot: int
    needed: int
    state: tuple[bytes, ...]


class Digest(Value):
    """Request: compare this digest of the state at `slot` with those of the other replicas."""

    slot: int
    digest: bytes


class Change(Value, tag="Change"):
    """Request to the leader: add a node that has offered itself, or remove a member, or both.

    `size` is the new target number of replicas; 0 keeps the current one. `force` allows a size that
    does not tolerate more failures than the next smaller size.
    """

    add: NodeId = NodeId("")
    remove: NodeId = NodeId("")
    size: int = 0
    force: bool = False


class HandOver(Value, tag="HandOver"):
    """Request to the leader: hand over leadership to `successor`."""

    successor: NodeId


class Retire(Value):
    """Request: this replica is about to stop. Let another replica lead, and never lead again."""


class Decided(Value):
    """`value` is decided in `slot`. Slots arrive in order.

    `token` is -1 if another node proposed the value.
    """

    slot: int
    value: bytes
    token: int = -1


class LeaderChanged(Value):
    """The leader has changed; "" means none. A new leader emits this after applying all slots."""

    leader: NodeId


class StateWanted(Value):
    """Another replica needs a snapshot. Answer with Compact immediately."""


class Installed(Value):
    """Replace the current state with `state`, the snapshot at `slot`."""

    slot: int
    state: tuple[bytes, ...]


class Compare(Value):
    """All replicas compare their states at `slot`. Answer with Digest immediately."""

    slot: int


class Added(Value):
    node: NodeId


class Removed(Value):
    node: NodeId


class LevelRaised(Value):
    """From now on, all present and future members can read entries of this level."""

    level: int


class NotSeated(Value):
    """`node` can read entries only up to level `known`, so it cannot join a group at `level`."""

    node: NodeId
    known: int
    level: int


class Suspected(Value):
    """The leader has heard nothing from a member for the suspicion time, or hears from it again."""

    node: NodeId
    silent: bool


class Mended(Value):
    """An entry that could not be read has been fetched from another replica."""

    slot: int


class Retired(Value):
    """This replica may stop now. `leader` leads; "" means that no other replica can lead."""

    leader: NodeId


class Missing(LookupError):
    """This replica cannot read an entry and is fetching it from another replica."""

    def __init__(self, slot: int) -> None:
        super().__init__(
            f"this replica cannot read entry {slot} and is fetching it from another replica"
        )
        self.slot = slot


class Group(Protocol):
    """The methods of a replica that other layers call directly."""

    @property
    def applied(self) -> int:
        """Return the last slot that this replica has applied."""
        ...

    @property
    def level(self) -> int:
        """Return the entry level that all present and future members can read."""
        ...

    def entry(self, slot: int) -> bytes:
        """Return the value of an untrimmed slot. Raise Missing if it is unreadable."""
        ...

    def leads(self, now: float) -> bool:
        """Return whether this replica leads, and so has applied all acknowledged slots."""
        ...

    def follows(self, now: float) -> bool:
        """Return whether this replica heard from its leader recently and has caught up."""
        ...

    def nodes(self) -> tuple[NodeId, ...]: ...


class StateMachine(Protocol):
    """Receives the restored log before the start: at most one snapshot, then values in order."""

    def install(self, slot: int, state: tuple[bytes, ...]) -> None: ...
    def learn(self, slot: int, value: bytes) -> None: ...
