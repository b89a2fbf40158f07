"""What the overlay's layers say to each other, and to the application.

application   Publish, Discard, Disregard ↓   Delivered, Lost ↑
Recovery      Broadcast ↓   Received ↑
Plumtree      NeighborUp, NeighborDown ↑ (Recovery follows them too)
Mesh or HyParView
"""

from __future__ import annotations

from oncecast.kernel.protocol import NodeId, Value

NUMBER_MAX = 2**62  # leaves room to count on from it in 64 bits
ORIGIN_LENGTH_MAX = 255


class MessageId(Value, tag=False, order=True):
    """The origin's first message is its number 1, and it leaves no number out.

    So what was seen of an origin is one number and the few that are lacking below it.
    """

    origin: NodeId
    number: int

    @property
    def possible(self) -> bool:
        """Whether an honest node could have made it; what a peer sends need not be."""
        return 1 <= self.number <= NUMBER_MAX and 0 < len(self.origin) <= ORIGIN_LENGTH_MAX


class NeighborUp(Value):
    peer: NodeId


class NeighborDown(Value):
    peer: NodeId


class Broadcast(Value):
    """Request: spread this to every node; its origin has it already."""

    id: MessageId
    payload: bytes


class Received(Value):
    """A broadcast has come, probably for the first time."""

    id: MessageId
    payload: bytes


class Publish(Value):
    """Request: number this, store it, and have it delivered once at every node, this one too."""

    payload: bytes


class Discard(Value):
    """Request: nobody needs this message any more. Its payload goes, or need not come."""

    id: MessageId


class Disregard(Value):
    """Request: nobody needs the numbers of this origin from 1 to `top`, but for the gaps."""

    origin: NodeId
    top: int
    gaps: tuple[tuple[int, int], ...]


class Delivered(Value):
    """A message is on this node's disk. No id is delivered twice, in whichever life."""

    id: MessageId
    payload: bytes


class Lost(Value):
    """These numbers existed, nobody keeps them any more, and they will never be delivered here."""

    origin: NodeId
    first: int
    last: int
