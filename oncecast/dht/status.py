"""Read-only views of Chord and Scribe for the viewer, the scenarios and the checkers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from oncecast.dht.identifiers import Key, Position
from oncecast.dht.member import Ownership
from oncecast.dht.messages import Call
from oncecast.kernel.protocol import NodeId


class MemberStatus(Protocol):
    """One position. `Member` explains the attributes."""

    @property
    def position(self) -> Position: ...
    @property
    def joined(self) -> bool: ...
    @property
    def settled(self) -> bool: ...
    @property
    def predecessor(self) -> Position | None: ...
    @property
    def successors(self) -> tuple[Position, ...]: ...
    @property
    def successors_max(self) -> int: ...
    @property
    def fingers(self) -> Mapping[int, Position]: ...
    @property
    def low(self) -> Key | None: ...
    def owns(self, key: Key) -> Ownership: ...


class TreeStatus(Protocol):
    """A node's role in one tree. `Tree` explains the attributes."""

    @property
    def topic(self) -> str: ...
    @property
    def root(self) -> bool: ...
    @property
    def parent(self) -> NodeId | None: ...
    @property
    def children(self) -> Mapping[NodeId, Key]: ...
    @property
    def needed(self) -> bool: ...


class Status(NamedTuple):
    """Chord's state at one node."""

    members: Iterable[MemberStatus]
    calls: Mapping[int, Call]  # unanswered calls
    lookups: int  # number of lookups in flight
    payloads: int  # number of payloads in flight to their next hop
    contacts: tuple[NodeId, ...]
    lost: tuple[NodeId, ...]  # lost nodes to look for, in the order of the next attempts
    dropped: int  # number of invalid messages and late answers
    refused: int  # number of requests that exceeded lookups_max
