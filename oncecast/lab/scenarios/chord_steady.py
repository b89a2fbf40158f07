"""A ring in its final shape, for scenarios where thousands of joins would take too long.

Its members have the successors, predecessors and fingers that a ring reaches once nodes stop
joining and failing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from oncecast.dht.identifiers import BITS, Key, Position, finger_start, position_ids, up_to
from oncecast.dht.member import Member
from oncecast.kernel.protocol import NodeId

SUCCESSORS_MAX = 8  # Chord's default


class Steady:
    def __init__(self, positions: Iterable[Position]) -> None:
        self.positions = sorted(positions, key=lambda position: position.id)
        self._ids = [position.id for position in self.positions]

    @classmethod
    def of(cls, nodes: Iterable[NodeId], *, positions_count: int = 1) -> Steady:
        """Return the ring of `nodes`, with `positions_count` positions each."""
        return cls(
            Position(id, node) for node in nodes for id in position_ids(node, positions_count)
        )

    def owner(self, key: Key) -> Position:
        return self.positions[bisect_left(self._ids, key) % len(self.positions)]

    def members(
        self, node: NodeId, successors_max: int = SUCCESSORS_MAX, *, positions_count: int = 1
    ) -> list[Member]:
        """Return one node's members, for the option `members` of its Chord."""
        ids = position_ids(node, positions_count)
        return [self.member(Position(id, node), successors_max) for id in ids]

    def member(self, position: Position, successors_max: int) -> Member:
        member = Member(position, successors_max)
        positions, me = self.positions, position.id
        at = bisect_left(self._ids, me)
        following = [
            positions[(at + step) % len(positions)] for step in range(1, successors_max + 1)
        ]
        member.join(positions[at - 1], following)
        member.settled = member.recognized = True
        if not member.successors:
            member.predecessor = None
            return member
        head = member.successors[0].id
        for index in range(BITS - 1, -1, -1):
            start = finger_start(me, index)
            if up_to(me, start, head):
                break
            member.set_finger(index, self.owner(start))
        return member
