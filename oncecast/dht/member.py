"""One position on the ring: who comes after it, who before, and short cuts across.

The rules that change it are Zave's ("Reasoning about Identifier Spaces: How to Make Chord Correct",
arXiv 1610.01140), which mend those of 2001. They read other members; Chord does that for them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator

from oncecast.dht.identifiers import BITS, Key, Place, between, finger_start, up_to
from oncecast.kernel.protocol import NodeId


class Member:
    """`successors` is empty for a member alone on its ring."""

    __slots__ = (
        "_ids",
        "_known",
        "busy",
        "candidate",
        "fingers",
        "heard",
        "joined",
        "next_finger",
        "notified",
        "place",
        "predecessor",
        "recognized",
        "settled",
        "successors",
        "successors_max",
        "unheard",
    )

    def __init__(self, place: Place, successors_max: int) -> None:
        self.place, self.successors_max = place, successors_max
        self.joined = False
        self.settled = False  # its successor has named it as predecessor at least once,
        self.recognized = False  # and did so when it was last asked
        self.successors: tuple[Place, ...] = ()
        self.predecessor: Place | None = None
        self.heard = 0.0  # when a predecessor last told us of itself,
        self.unheard = False  # and whether that is too long ago
        self.fingers: dict[int, Place] = {}
        self.next_finger = BITS - 1
        self.busy = False  # one operation at a time
        self.notified: Place | None = None  # who notified us meanwhile
        self.candidate: Place | None = None  # a nearer successor than ours, by hearsay
        self._known: list[Place] | None = None  # all of them by id, until something changes
        self._ids: list[Key] = []

    # -- the rules --

    def join(self, before: Place, successors: Iterable[Place]) -> None:
        """Become a member right after `before`, with its whole list."""
        me = self.place.id
        self.joined = True
        self.predecessor = before
        self._set([place for place in successors if place.id != me] or [before])

    def follow(self, head: Place, successors: Iterable[Place]) -> None:
        """Replace the list by `head` and its list: never merge them."""
        self._set([head, *successors])

    def _set(self, successors: list[Place]) -> None:
        kept: list[Place] = []
        last, me = self.place.id, self.place.id
        for place in successors[: self.successors_max]:
            if not between(last, place.id, me):
                break  # once round: the ring is smaller than the list
            kept.append(place)
            last = place.id
        self.successors = tuple(kept)
        self._known = None

    def drop(self, node: NodeId) -> bool:
        """A node is dead: no successor and no finger of ours. Whether it was the head."""
        was_head = bool(self.successors) and self.successors[0].node == node
        self.successors = tuple(place for place in self.successors if place.node != node)
        for index in [index for index, finger in self.fingers.items() if finger.node == node]:
            del self.fingers[index]
        if self.candidate is not None and self.candidate.node == node:
            self.candidate = None
        self._known = None
        return was_head

    def nearer(self, place: Place | None) -> bool:
        """Whether it lies between us and the head of our list."""
        if place is None:
            return False
        head = self.successors[0].id if self.successors else self.place.id
        return between(self.place.id, place.id, head)

    def precedes_better(self, new: Place) -> bool:
        """Whether it lies between our predecessor and us."""
        before = self.predecessor
        return before is None or between(before.id, new.id, self.place.id)

    # -- who owns what --

    @property
    def low(self) -> Key | None:
        """Return the id after which the keys of this member begin, or None if it is unknown.

        This is the only rule for who owns a key, and it takes both neighbours: the predecessor has
        told us of itself lately, and the successor names us as its predecessor. Where links are
        cut two members may own a key even so. What must not have two owners is decided elsewhere.
        """
        if not self.recognized:
            return None
        if self.predecessor is None:
            return None if self.successors else self.place.id
        return None if self.unheard else self.predecessor.id

    def owns(self, key: Key) -> bool:
        """Return whether this member is certain to own `key`."""
        low = self.low
        return low is not None and up_to(low, key, self.place.id)

    def may_own(self, key: Key, via: Key | None = None) -> bool:
        """Return whether this member is the best guess for the owner of `key`.

        `via` is where another node says that our predecessor is. It counts when no predecessor has
        told us of itself for long: the link to it may be cut.
        """
        low = via if self.unheard else None
        if self.predecessor is not None:
            low = self.predecessor.id
        return self.settled and low is not None and up_to(low, key, self.place.id)

    def is_before(self, key: Key) -> bool:
        """Whether the key lies between us and our successor."""
        return not self.successors or up_to(self.place.id, key, self.successors[0].id)

    # -- the way to a key --

    def preceding(self, key: Key, most: int, avoid: Container[NodeId] = ()) -> tuple[Place, ...]:
        """Of those known the nearest before `key`; the nearest first."""
        found: list[Place] = []
        for place in self._back_from(key):
            if place.node not in avoid:
                found.append(place)
                if len(found) == most:
                    break
        return tuple(found)

    def listed_owner(self, key: Key) -> tuple[Place, int] | None:
        """If the key lies within our list: who comes before it, and where in the list its owner."""
        before = self.place
        for at, place in enumerate(self.successors):
            if up_to(before.id, key, place.id):
                return before, at
            before = place
        return None

    def _back_from(self, key: Key) -> Iterator[Place]:
        known = self.known()
        me = self.place.id
        start = bisect_left(self._ids, key) - 1
        for index in range(start, start - len(known), -1):
            place = known[index]  # below 0 it goes round, as the ring does
            if not between(me, place.id, key):
                return
            yield place

    def known(self) -> list[Place]:
        if self._known is None:
            by_id = {place.id: place for place in self.fingers.values()}
            by_id.update((place.id, place) for place in self.successors)
            by_id.pop(self.place.id, None)
            self._ids = sorted(by_id)
            self._known = [by_id[id] for id in self._ids]
        return self._known

    # -- fingers: they make lookups fast and never matter for anything else --

    def finger_to_fix(self) -> int | None:
        """The next in turn, from the farthest to the last one that is not our successor."""
        if not self.successors:
            self.fingers.clear()
            self._known = None
            return None
        index = self.next_finger
        if self._within_head(index):
            for lower in [lower for lower in self.fingers if lower <= index]:
                del self.fingers[lower]
            self._known = None
            index = BITS - 1
            if self._within_head(index):
                return None
        self.next_finger = index - 1 if index else BITS - 1
        return index

    def _within_head(self, index: int) -> bool:
        return up_to(self.place.id, finger_start(self.place.id, index), self.successors[0].id)

    def set_finger(self, index: int, place: Place) -> None:
        if place.id == self.place.id:
            self.fingers.pop(index, None)
        else:
            self.fingers[index] = place
        self._known = None
