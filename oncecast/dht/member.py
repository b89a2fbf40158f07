"""One of this node's positions on the ring, with its neighbours and fingers.

The update rules are those of Zave, "Reasoning about Identifier Spaces: How to Make Chord Correct"
(arXiv 1610.01140), which correct the rules of 2001. `Stabilization` applies them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator
from enum import IntEnum

from oncecast.dht.identifiers import BITS, Key, Position, between, finger_start, up_to
from oncecast.kernel.protocol import NodeId


class Ownership(IntEnum):
    """How sure a member is that it owns a key."""

    NO = 0
    HINT = 1  # the member may own the key, and knows no better owner
    CERTAIN = 2


class Member:
    """A position on the ring. `successors` is empty if the member is alone or isolated."""

    __slots__ = (
        "_ids",
        "_known",
        "busy",
        "candidate",
        "fingers",
        "heard_at",
        "joined",
        "next_finger",
        "notified",
        "position",
        "predecessor",
        "recognized",
        "settled",
        "successors",
        "successors_max",
        "unheard",
    )

    def __init__(self, position: Position, successors_max: int) -> None:
        self.position, self.successors_max = position, successors_max
        self.joined = False
        self.settled = False  # its successor has named it as predecessor at least once
        self.recognized = False  # its successor's last report names it as predecessor
        self.successors: tuple[Position, ...] = ()
        self.predecessor: Position | None = None
        self.heard_at = 0.0  # when a predecessor last notified this member
        self.unheard = False  # whether `heard_at` is too long ago
        self.fingers: dict[int, Position] = {}
        self.next_finger = BITS - 1
        self.busy = False  # whether an operation runs; only one runs at a time
        self.notified: Position | None = None  # the best Notify since the operation began
        self.candidate: Position | None = None  # possibly a nearer successor; not probed yet
        self._known: list[Position] | None = None  # successors and fingers by id; None if stale
        self._ids: list[Key] = []

    # -- Zave's rules --

    def join(self, before: Position, successors: Iterable[Position]) -> None:
        """Become a member right after `before`, with the successor list of `before`."""
        me = self.position.id
        self.joined = True
        self.predecessor = before
        self._set([each for each in successors if each.id != me] or [before])

    def follow(self, head: Position, successors: Iterable[Position]) -> None:
        """Replace the successor list with `head` and its list. Lists are never merged."""
        self._set([head, *successors])

    def _set(self, successors: list[Position]) -> None:
        kept: list[Position] = []
        last, me = self.position.id, self.position.id
        for position in successors[: self.successors_max]:
            if not between(last, position.id, me):
                break  # the ring is smaller than the list
            kept.append(position)
            last = position.id
        self.successors = tuple(kept)
        self._known = None

    def drop(self, node: NodeId) -> bool:
        """Remove a dead node from all tables. Return whether it was the first successor."""
        was_head = bool(self.successors) and self.successors[0].node == node
        self.successors = tuple(each for each in self.successors if each.node != node)
        for index in [index for index, finger in self.fingers.items() if finger.node == node]:
            del self.fingers[index]
        if self.candidate is not None and self.candidate.node == node:
            self.candidate = None
        self._known = None
        if was_head:
            self.recognized = False
        if self.joined and not self.successors:
            # A lone member needs no confirmation. An isolated member starts over.
            self.recognized = self.settled = not self.fingers
        return was_head

    @property
    def cut_off(self) -> bool:
        """Return whether all successors are lost, but a finger still leads to the ring."""
        return not self.successors and bool(self.fingers)

    def nearest(self) -> Position | None:
        """Return the first known position after this member, or None."""
        known = self.known()
        return known[bisect_left(self._ids, self.position.id) % len(known)] if known else None

    def nearer(self, position: Position | None) -> bool:
        """Return whether `position` lies between this member and its first successor."""
        if position is None:
            return False
        head = self.successors[0].id if self.successors else self.position.id
        return between(self.position.id, position.id, head)

    def precedes_better(self, new: Position) -> bool:
        """Return whether `new` is a better predecessor: it lies between the old one and us."""
        before = self.predecessor
        return before is None or between(before.id, new.id, self.position.id)

    # -- ownership --

    @property
    def low(self) -> Key | None:
        """Return the identifier after which this member's keys begin, or None if unknown.

        Both neighbours must agree: the predecessor notified this member recently, and the successor
        names it as predecessor. While links are cut, two members may still own the same key.
        """
        if not self.recognized:
            return None
        if self.predecessor is None:
            return None if self.successors else self.position.id
        return None if self.unheard else self.predecessor.id

    def owns(self, key: Key, via: Key | None = None) -> Ownership:
        """Return whether, and how surely, this member owns `key`. No other code decides ownership.

        `via` is this member's predecessor according to another node. It counts only if no
        predecessor has notified this member for a long time, because their link may be cut.
        """
        low, sure = self.low, Ownership.CERTAIN
        if low is None and self.settled:
            sure = Ownership.HINT
            if self.predecessor is not None:
                low = self.predecessor.id
            elif self.unheard:
                low = via
        return sure if low is not None and up_to(low, key, self.position.id) else Ownership.NO

    # -- the route to a key --

    def is_before(self, key: Key) -> bool:
        """Return whether `key` lies between this member and its successor."""
        if not self.successors:
            return not self.cut_off
        return up_to(self.position.id, key, self.successors[0].id)

    def preceding(self, key: Key, most: int, avoid: Container[NodeId] = ()) -> tuple[Position, ...]:
        """Return up to `most` known positions before `key`, the nearest first."""
        found: list[Position] = []
        for position in self._back_from(key):
            if position.node not in avoid:
                found.append(position)
                if len(found) == most:
                    break
        return tuple(found)

    def listed_owner(self, key: Key) -> tuple[Position, int] | None:
        """Return the position before `key` and the index of the owner in the successor list.

        Return None if the list does not cover `key`.
        """
        before = self.position
        for at, position in enumerate(self.successors):
            if up_to(before.id, key, position.id):
                return before, at
            before = position
        return None

    def _back_from(self, key: Key) -> Iterator[Position]:
        known = self.known()
        me = self.position.id
        start = bisect_left(self._ids, key) - 1
        for index in range(start, start - len(known), -1):
            position = known[index]  # a negative index wraps around, as the ring does
            if not between(me, position.id, key):
                return
            yield position

    def known(self) -> list[Position]:
        """Return all successors and fingers, sorted by identifier."""
        if self._known is None:
            by_id = {position.id: position for position in self.fingers.values()}
            by_id.update((position.id, position) for position in self.successors)
            by_id.pop(self.position.id, None)
            self._ids = sorted(by_id)
            self._known = [by_id[id] for id in self._ids]
        return self._known

    # -- fingers, which only speed up lookups --

    def finger_to_fix(self) -> int | None:
        """Return the index of the next finger to fix, or None if no finger is needed.

        The indexes go from the farthest finger down to the last one beyond the first successor.
        """
        if not self.successors:
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
        me = self.position.id
        return up_to(me, finger_start(me, index), self.successors[0].id)

    def set_finger(self, index: int, position: Position) -> None:
        if position.id == self.position.id:
            self.fingers.pop(index, None)
        else:
            self.fingers[index] = position
        self._known = None


class Members:
    """The positions of this node, which the parts of Chord share."""

    def __init__(self, members: Iterable[Member]) -> None:
        self._by_id = {member.position.id: member for member in members}

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def at(self, id: Key) -> Member | None:
        return self._by_id.get(id)

    def before(self, key: Key) -> Member | None:
        """Return the joined member of this node that is nearest before `key`, or None."""
        ids = [id for id, member in self._by_id.items() if member.joined]
        if not ids:
            return None
        return self._by_id[max(ids, key=lambda id: (id < key, id))]

    def own(self, key: Key) -> Ownership:
        """Return whether, and how surely, a joined member of this node owns `key`."""
        joined = (member.owns(key) for member in self if member.joined)
        return max(joined, default=Ownership.NO)
