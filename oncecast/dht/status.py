"""Read-only views of Chord and Scribe for the viewer, the scenarios and the checkers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from oncecast.dht.identifiers import Key, Position
from oncecast.dht.member import Ownership
from oncecast.dht.messages import Call
from oncecast.kernel.protocol import NodeId


class MemberStatus(Protocol):
    """A position of a node. See `Member` for the meaning of each attribute."""

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
    """A node's role in one tree. See `Tree` for the meaning of each attribute."""

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
    """The state of Chord at one node."""

    members: Iterable[MemberStatus]
    calls: Mapping[int, Call]  # unanswered calls
    lookups: int  # lookups in flight
    payloads: int  # payloads in flight to their next hop
    contacts: tuple[NodeId, ...]
    lost: tuple[NodeId, ...]  # lost nodes to look for, in the order of the next attempts
    dropped: int  # invalid messages and late answers
    refused: int  # requests that exceeded lookups_max
