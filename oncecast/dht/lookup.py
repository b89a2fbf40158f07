"""A lookup as its asker sees it: whom to ask next, whom to avoid, who owns the key at last.

It is iterative, as in the simulations of the Chord paper: the asker goes from node to node, so a
dead one costs it a time-out and never the lookup.
"""

from __future__ import annotations

from collections.abc import Iterable

from oncecast.dht.events import AVOID_MAX
from oncecast.dht.identifiers import Key, Place, between
from oncecast.dht.member import Member
from oncecast.kernel.protocol import NodeId

STEPS_MAX = 600  # more than an id has bits: the ring has changed under us, and we begin anew


class Root:
    """Purpose: tell the layer above who owns the key."""


class Joining:
    """Purpose: find the one that our position comes after."""

    def __init__(self, member: Member) -> None:
        self.member = member


class Reuniting:
    """Purpose: see whether a node that was gone knows another ring than ours."""

    def __init__(self, member: Member, node: NodeId) -> None:
        self.member, self.node = member, node


class Fixing:
    """Purpose: renew a finger."""

    def __init__(self, member: Member, index: int) -> None:
        self.member, self.index = member, index


Purpose = Root | Joining | Reuniting | Fixing


class Lookup:
    __slots__ = (
        "asked",
        "avoid",
        "before",
        "contacts",
        "contacts_left",
        "doubted",
        "doubts",
        "hops",
        "itself",
        "key",
        "nearest",
        "news",
        "number",
        "owners",
        "pool",
        "purpose",
        "steps",
        "timeouts",
        "unavoided",
    )

    def __init__(
        self, number: int, key: Key, purpose: Purpose, contacts: tuple[NodeId, ...]
    ) -> None:
        self.number, self.key, self.purpose = number, key, purpose
        self.contacts = contacts  # whom to ask first; their places on the ring are unknown
        self.contacts_left = list(contacts)
        self.pool: dict[Key, Place] = {}  # known, and not asked yet
        self.asked: dict[Key, None] = {}
        self.avoid: dict[NodeId, None] = {}  # they did not answer
        self.unavoided = True  # nobody has been avoided since the last beginning
        self.nearest: Place | None = None  # the last that has answered,
        self.news = False  # and whether somebody was avoided since
        self.before: Place | None = None  # the one before the key, once it is found,
        self.owners: list[Place] = []  # and who comes after it
        self.hops = self.timeouts = self.steps = 0
        self.doubted = 0  # times that an owner was not sure to be it,
        self.doubts = 0  # and how many were asked because of that
        # Whether the one before the key must answer itself: who joins copies its list.
        self.itself = isinstance(purpose, Joining | Reuniting)

    def begin_again(self, *, forgive: bool) -> None:
        if forgive:
            self.avoid.clear()
        self.contacts_left = [node for node in self.contacts if node not in self.avoid]
        self.pool.clear()
        self.asked.clear()
        self.nearest = self.before = None
        self.owners = []
        self.steps = 0
        self.unavoided = True

    def learn(self, places: Iterable[Place]) -> None:
        for place in places:
            if place.id != self.key and place.id not in self.asked:
                self.pool[place.id] = place

    def next(self) -> Place | None:
        """The nearest before the key, of those not asked yet; but never go back.

        Where the nearest that has answered named only dead ones, it is asked again without them.
        """
        key, nearest = self.key, self.nearest
        while self.pool:
            id = max(self.pool, key=lambda id: (id < key, id))
            if nearest is not None and not between(nearest.id, id, key):
                break
            place = self.pool.pop(id)
            if place.node not in self.avoid:
                self.asked[id] = None
                return place
        if nearest is not None and self.news:
            self.news = False
            return nearest
        return None

    def answered(self, place: Place | None) -> None:
        """By somebody on the way; its place is unknown if it is a contact."""
        if place is None or place != self.nearest:
            if self.doubted:
                self.doubts += 1
            else:
                self.hops += 1
            self.nearest, self.news = place, False

    def found_before(self, before: Place, successors: Iterable[Place], me: NodeId) -> None:
        self.before = before
        self.owners = list(successors) or [before]
        who = me if self.nearest is None else self.nearest.node
        if before.node != who and not self.itself:
            self.hops += 1  # past the one before it, right to the owner

    def owner(self) -> Place | None:
        """The first after the key that may be alive."""
        while self.owners and self.owners[0].node in self.avoid:
            del self.owners[0]
        return self.owners[0] if self.owners else None

    def silent(self, node: NodeId) -> None:
        if self.doubted:
            self.doubts += 1
        else:
            self.timeouts += 1
        self.unavoided = False
        self.news = True
        if self.nearest is not None and self.nearest.node == node:
            self.nearest = None
        self.avoid[node] = None
        if len(self.avoid) > AVOID_MAX:
            del self.avoid[next(iter(self.avoid))]
