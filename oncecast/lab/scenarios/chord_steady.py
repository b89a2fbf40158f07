"""A ring as it is when all is quiet, for scenarios: ten thousand joins would take too long.

Members filled from it have the successors, predecessors and fingers that joining, stabilizing and
fixing fingers end with.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from oncecast.dht.chord import Chord
from oncecast.dht.identifiers import BITS, Key, Place, finger_start, positions, up_to
from oncecast.dht.member import Member
from oncecast.kernel.protocol import NodeId


class Steady:
    def __init__(self, nodes: Iterable[NodeId], *, positions_count: int = 1) -> None:
        self.lay(Place(id, node) for node in nodes for id in positions(node, positions_count))

    def lay(self, places: Iterable[Place]) -> None:
        self.places = sorted(places, key=lambda place: place.id)
        self._ids = [place.id for place in self.places]

    def owner(self, key: Key) -> Place:
        return self.places[bisect_left(self._ids, key) % len(self.places)]

    def fill(self, chord: Chord) -> Chord:
        """Make it a member, before it starts; all positions of the ring must be filled."""
        for member in chord.members.values():
            self.fill_member(member)
        return chord

    def fill_member(self, member: Member) -> None:
        places, me = self.places, member.place.id
        at = bisect_left(self._ids, me)
        following = [
            places[(at + step) % len(places)] for step in range(1, member.successors_max + 1)
        ]
        member.join(places[at - 1], following)
        member.settled = member.recognized = True
        if not member.successors:
            member.predecessor = None
            return
        head = member.successors[0].id
        for index in range(BITS - 1, -1, -1):
            start = finger_start(me, index)
            if up_to(me, start, head):
                return
            member.set_finger(index, self.owner(start))
