"""What a group owns of the ring, and what of it is on its way to or from another group.

A group lies at one position of the ring and owns the arc that ends there: the topics whose keys
come after `low`, up to the position itself. Arcs change hands between neighbours only, and only by
commands that both groups have decided, so no key ever has two owners (REP-6).

    the giver                                    the taker
                                                 Claim: takes copies, which nobody sees
    Freeze: a part of the arc is served no more
                                                 Adopt: all is here; it is served from now on
    Release: the part is another's
                                                 Finish

Until Adopt the taker may Abandon; then the giver may Thaw.
"""

from __future__ import annotations

from oncecast.broker.staging import Part, Source
from oncecast.broker.topic import Topic
from oncecast.dht.identifiers import Key, key_of, up_to
from oncecast.kernel.protocol import NodeId, Value

PartName = tuple[str, int, str]


class PeerGroup(Value, tag=False):
    """The other group of a move, and where its replicas were last known to be."""

    group: str
    nodes: tuple[NodeId, ...]


class ActiveClaim(Value, tag=False):
    move: str  # text that no other move is called
    exporter: PeerGroup
    adopted: bool = False


class Frozen(Value, tag=False):
    """What lies after the arc's low end, up to `until`, is about to be the taker's."""

    move: str
    until: Key
    importer: PeerGroup


class Holdings:
    def __init__(self, group: str, low: Key | None) -> None:
        self.group, self.position = group, key_of(group)
        self.low = low  # None: it owns nothing; the position itself: it owns all
        self.retired = False  # it wants to give all, and then be gone
        self.claim: ActiveClaim | None = None
        self.incoming: dict[str, Topic] = {}  # copies that the claim has brought so far
        self.parts: dict[PartName, Part] = {}  # and staged ones, by source, number and name
        self.frozen: Frozen | None = None
        self.outgoing: dict[str, Topic] = {}  # what is frozen
        self.sources: dict[str, Source] = {}  # and those whose topics are

    def owns(self, topic: str) -> bool:
        """Whether this group serves it now."""
        if self.low is None:
            return False
        key = key_of(topic)
        if self.frozen is not None and up_to(self.low, key, self.frozen.until):
            return False
        return up_to(self.low, key, self.position)

    def in_part(self, topic: str, until: Key) -> bool:
        """Whether it lies between the low end of the arc and `until`."""
        return self.low is not None and up_to(self.low, key_of(topic), until)

    def may_export(self, until: Key) -> bool:
        return self.low is not None and up_to(self.low, until, self.position)

    def may_import(self, until: Key) -> bool:
        """What ends where the arc begins, or at the position if there is no arc yet."""
        return until == (self.position if self.low is None else self.low)
