"""Memberships and majorities: pure arithmetic.

A member is a node in one incarnation of its disk. A node that has lost its disk comes back in a new
incarnation. That incarnation has no vote until a decided membership names it. Each slot has exactly
one membership: the last one that was decided before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container
from typing import NamedTuple

import msgspec

from oncecast.kernel.protocol import NodeId
from oncecast.replication.ballot import Ballot

# Each member costs a message per command. Nine members survive four failures.
SIZE_MAX = 9


class Member(NamedTuple):
    node: NodeId
    incarnation: int


class Config(msgspec.Struct, frozen=True, array_like=True):
    """A membership. `size` is the target number of members. Each change increments `version`.

    `group` is the incarnation of the founder, which distinguishes groups; 0 means unknown. Each
    member can read entries up to `level`. The level never falls, and no node that supports less
    can become a member.
    """

    version: int
    members: tuple[Member, ...]
    size: int
    group: int = 0
    level: int = 1

    def nodes(self) -> list[NodeId]:
        return [member.node for member in self.members]

    def member(self, node: NodeId) -> Member | None:
        return next((member for member in self.members if member.node == node), None)

    @property
    def majority(self) -> int:
        return len(self.members) // 2 + 1

    def agreed(self, voters: Container[Member]) -> bool:
        """Return whether the voters are a majority. An empty membership has no majority."""
        members = self.members
        left = len(members) // 2 + 1
        for member in members:
            if member in voters:
                left -= 1
        return left <= 0

    def successor(self, *members: Member, size: int = 0, level: int = 0) -> Config:
        """Return the next membership, which may differ by at most one member.

        Each majority of one membership then overlaps each majority of the other.
        """
        size, level = size or self.size, level or self.level
        return Config(self.version + 1, members, size, self.group, level)

    def added(self, member: Member, size: int = 0) -> Config:
        return self.successor(*self.members, member, size=size)

    def removed(self, node: NodeId, size: int = 0) -> Config:
        kept = [member for member in self.members if member.node != node]
        return self.successor(*kept, size=size)

    def follows(self, before: Config) -> bool:
        """Return whether this membership may replace `before`. Any membership may be the first."""
        if not self.members or len(set(self.nodes())) < len(self.members):
            return False
        if not before.version:
            return True
        changed = set(self.members) ^ set(before.members)
        sound = self.group == before.group and self.level >= before.level
        return self.version == before.version + 1 and len(changed) <= 1 and sound

    def with_sound_size(self) -> Config:
        """Return this membership with a valid size: replace an invalid one with the member count.

        Earlier versions accepted any size that a client asked for.
        """
        if 1 <= self.size <= SIZE_MAX or not self.members:
            return self
        size = min(len(self.members), SIZE_MAX)
        return Config(self.version, self.members, size, self.group, self.level)

    def without_secrets(self) -> Config:
        """Return a copy with only addresses and level, for a node that is not admitted."""
        members = tuple(Member(member.node, 0) for member in self.members)
        return Config(self.version, members, self.size, level=self.level)


NO_MEMBERS = Config(0, (), 0)

encode_config = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Config).decode


def decode_config(data: bytes) -> Config:
    """Return the decoded membership, or NO_MEMBERS if the bytes are invalid.

    Every replica ignores an invalid membership.
    """
    try:
        return _decode(data).with_sound_size()
    except (ValueError, RecursionError):
        return NO_MEMBERS


class Memberships:
    """The membership of each slot."""

    def __init__(self) -> None:
        self._slots = [0]  # the slot that decided each membership, which applies to later slots
        self._configs = [NO_MEMBERS]
        self.last = NO_MEMBERS
        self.named: dict[NodeId, None] = {}  # the nodes of the last membership

    @property
    def since(self) -> int:
        """Return the slot at which the last membership was decided."""
        return self._slots[-1]

    def of(self, slot: int) -> Config:
        """Return the membership that votes on this slot."""
        return self._configs[bisect_left(self._slots, slot) - 1]

    def knows(self, slot: int) -> bool:
        return self._slots[0] < slot

    def decided(self, slot: int, config: Config) -> None:
        self._slots.append(slot)
        self._configs.append(config)
        self._set_last(config)

    def start(self, slot: int, config: Config) -> None:
        """Start with this membership. Slots before `slot` are no longer needed."""
        config = config.with_sound_size()
        self._slots, self._configs = [slot], [config]
        self._set_last(config)

    def _set_last(self, config: Config) -> None:
        self.last, self.named = config, dict.fromkeys(config.nodes())

    def forget(self, slot: int) -> None:
        """Drop the memberships that only apply to slots up to `slot`."""
        keep = max(0, bisect_left(self._slots, slot + 1) - 1)
        del self._slots[:keep], self._configs[:keep]


class Tally:
    __slots__ = ("ballot", "voters")

    def __init__(self, ballot: Ballot) -> None:
        self.ballot = ballot
        self.voters: dict[Member, None] = {}


class Tallies(dict[int, Tally]):
    """The votes for each slot: the members that accepted it with the highest ballot seen."""

    def count(self, slot: int, ballot: Ballot, member: Member) -> None:
        tally = self.get(slot)
        if tally is None or ballot > tally.ballot:
            tally = self[slot] = Tally(ballot)
        if ballot == tally.ballot:
            tally.voters[member] = None

    def voters(self, slot: int, ballot: Ballot) -> dict[Member, None]:
        """Return the members that accepted this slot with exactly this ballot."""
        tally = self.get(slot)
        return tally.voters if tally is not None and tally.ballot == ballot else {}

    def won(self, slot: int, ballot: Ballot, config: Config) -> bool:
        """Return whether a majority accepted this slot with exactly this ballot."""
        return config.agreed(self.voters(slot, ballot))
