"""The arc of the ring that a group owns, and the part of it that is moving.

A group owns the arc that ends at its position: the topics with keys after `low`, up to the
position. Arcs move only between neighbours, by commands that both groups decide, so a key never has
two owners (REP-6).

    exporter                                     importer
                                                 Claim: stores copies that clients do not see
    Freeze: stops serving part of its arc
                                                 Adopt: has all messages; serves the part
    Release: drops the part
                                                 Finish: may claim again

Before Adopt the importer may Abandon; then the exporter may Thaw.
"""

from __future__ import annotations

from oncecast.broker.staging import Part, Source
from oncecast.broker.topic import Topic
from oncecast.broker.topics import Topics
from oncecast.dht.identifiers import Key, key_of, key_of_topic, up_to
from oncecast.kernel.protocol import NodeId, Value

PartName = tuple[str, int, str]


class PeerGroup(Value, tag=False):
    """The other group in a move, and the last known addresses of its replicas."""

    group: str
    nodes: tuple[NodeId, ...]


class ActiveClaim(Value, tag=False):
    move: str  # unique id of the move
    exporter: PeerGroup
    adopted: bool = False


class Frozen(Value, tag=False):
    """The part of the arc that is moving to the importer, from its low end up to `until`."""

    move: str
    until: Key
    importer: PeerGroup


class Holdings:
    def __init__(self, group: str, low: Key | None) -> None:
        self.group, self.position = group, key_of(group)
        # `low` is None if the group owns nothing, and its own position if it owns everything.
        self.low = low
        self.tagged = False  # whether a tag in a topic's name decides its owner
        self.retired = False  # the group exports everything, then stops
        self.claim: ActiveClaim | None = None
        self.incoming: dict[str, Topic] = {}  # copies imported so far
        self.parts: dict[PartName, Part] = {}  # imported staged parts, by source, number and name
        self.frozen: Frozen | None = None
        self.outgoing = Topics()  # topics in the frozen part
        self.sources: dict[str, Source] = {}  # sources in the frozen part

    def key_of(self, topic: str) -> Key:
        return key_of_topic(topic) if self.tagged else key_of(topic)

    def owns(self, topic: str) -> bool:
        """Return whether this group currently serves the topic."""
        if self.low is None:
            return False
        key = self.key_of(topic)
        if self.frozen is not None and up_to(self.low, key, self.frozen.until):
            return False
        return up_to(self.low, key, self.position)

    def in_part(self, topic: str, until: Key) -> bool:
        """Return whether the topic lies after the arc's low end, up to `until`."""
        return self.low is not None and up_to(self.low, self.key_of(topic), until)

    def may_export(self, until: Key) -> bool:
        return self.low is not None and up_to(self.low, until, self.position)

    def may_import(self, until: Key) -> bool:
        """Return whether a part ending at `until` would extend the arc at its low end.

        A group without an arc can import a part ending at its own position.
        """
        return until == (self.position if self.low is None else self.low)
