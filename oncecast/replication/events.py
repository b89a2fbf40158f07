"""What a replica group is asked for and what it tells, whatever protocol is behind it (REP-3).

    Propose, Compact, Digest, Change, HandOver, Retire ↓
    Decided, LeaderChanged, StateWanted, Installed, Compare, Added, Removed, Suspected, Mended,
    Retired ↑
    and, to whoever holds the group: `entry(place)` reads again, `leads(now)`, `nodes()`

A proposal may be decided more than once, or never, if its node crashes or ceases to lead: whoever
proposes must make its commands idempotent, and propose again until it hears.
"""

from __future__ import annotations

from typing import Protocol

from oncecast.kernel.protocol import NodeId, Value


class Propose(Value):
    """Request: put `value` into the order. `token` comes back with it, at this node only, as long
    as it leads."""

    token: int
    value: bytes


class Compact(Value):
    """Request: `state` stands for all that was decided up to `place`; nothing before `needed` will
    be read again."""

    place: int
    needed: int
    state: tuple[bytes, ...]


class Digest(Value):
    """Request: this is what the state at `place` comes to; it is compared with the others'."""

    place: int
    digest: bytes


class Change(Value, tag="Change"):
    """Request to the leader: take a node that has offered itself, or let one go, or both.

    `size` is how many replicas there should be from then on; 0 leaves that as it is.
    """

    add: NodeId = NodeId("")
    remove: NodeId = NodeId("")
    size: int = 0


class HandOver(Value, tag="HandOver"):
    """Request to the leader: let another one lead."""

    heir: NodeId


class Retire(Value):
    """Request: this replica is about to stop. Let another one lead, and never lead again."""


class Decided(Value):
    """`value` stands at `place`, for ever. Places grow; `token` is -1 for what others proposed."""

    place: int
    value: bytes
    token: int = -1


class LeaderChanged(Value):
    """`leader` may be nobody. Who leads itself hears it when it has all that was ever decided."""

    leader: NodeId


class StateWanted(Value):
    """Somebody must be given the state: answer with Compact, now."""


class Installed(Value):
    """Forget all: `state` stands for what was decided up to `place`."""

    place: int
    state: tuple[bytes, ...]


class Compare(Value):
    """All replicas compare what they have at `place`: answer with Digest, now."""

    place: int


class Added(Value):
    node: NodeId


class Removed(Value):
    node: NodeId


class Suspected(Value):
    """The leader has not heard of it for the suspicion time; or has again."""

    node: NodeId
    silent: bool


class Mended(Value):
    """What could not be read at `place` can be read again."""

    place: int


class Retired(Value):
    """This replica may stop now: `leader` leads, or is nobody if no other one can."""

    leader: NodeId


class Missing(LookupError):
    """An entry that this replica cannot read; it is being fetched from the others."""

    def __init__(self, place: int) -> None:
        super().__init__(f"entry {place} cannot be read here; it is being fetched from a replica")
        self.place = place


class Group(Protocol):
    """What is asked of a replica directly: nothing of it changes anything."""

    @property
    def applied(self) -> int:
        """The last place that is applied here; a change of members has one, too."""
        ...

    def entry(self, place: int) -> bytes:
        """What was decided there and is not yet trimmed. Raises Missing."""
        ...

    def leads(self, now: float) -> bool:
        """Whether what is applied here is all that anybody can have heard of."""
        ...

    def nodes(self) -> tuple[NodeId, ...]:
        """The replicas."""
        ...


class StateMachine(Protocol):
    """Gets, before the start, what the log holds: at most one snapshot, then values in order."""

    def install(self, place: int, state: tuple[bytes, ...]) -> None: ...
    def learn(self, place: int, value: bytes) -> None: ...
