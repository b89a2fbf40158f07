"""Requests and events between the layers of the overlay and the application.

application   Publish, Discard, Disregard ↓   Delivered, Lost ↑
Recovery      Broadcast ↓   Received ↑
Plumtree      NeighborUp, NeighborDown ↑ (Recovery observes these events too)
Mesh or HyParView
"""

from __future__ import annotations

from oncecast.kernel.protocol import NodeId, Value

NUMBER_MAX = 2**62  # so that the sum of two or three numbers fits in a 64-bit integer
ORIGIN_LENGTH_MAX = 255


class MessageId(Value, tag=False, order=True):
    """A message's origin, and its number at that origin, counted from 1 without gaps.

    A node stores the numbers that it has seen as the highest number and the gaps below.
    """

    origin: NodeId
    number: int

    @property
    def possible(self) -> bool:
        """Return whether an honest node could have created this id."""
        return 1 <= self.number <= NUMBER_MAX and 0 < len(self.origin) <= ORIGIN_LENGTH_MAX


class NeighborUp(Value):
    peer: NodeId


class NeighborDown(Value):
    peer: NodeId


class Broadcast(Value):
    """Request: send a message from this node to all other nodes."""

    id: MessageId
    payload: bytes


class Received(Value):
    """A broadcast has arrived, usually for the first time."""

    id: MessageId
    payload: bytes


class Publish(Value):
    """Request: store a message and deliver it once to each node, including this one."""

    payload: bytes


class Discard(Value):
    """Request: delete a message that no node needs any longer, or stop fetching it."""

    id: MessageId


class Disregard(Value):
    """Request: delete the messages 1 to `top` of an origin, except those in `gaps`."""

    origin: NodeId
    top: int
    gaps: tuple[tuple[int, int], ...]


class Delivered(Value):
    """A message is stored on this node's disk. No id is delivered twice, even after restarts."""

    id: MessageId
    payload: bytes


class Lost(Value):
    """No node has these messages any longer, so this node will never deliver them."""

    origin: NodeId
    first: int
    last: int
