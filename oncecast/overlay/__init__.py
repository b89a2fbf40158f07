"""Cluster membership, and a durable broadcast that delivers each message once to each node."""

from oncecast.overlay.events import (
    Broadcast,
    Delivered,
    Lost,
    MessageId,
    NeighborDown,
    NeighborUp,
    Publish,
    Received,
)
from oncecast.overlay.hyparview import HyParView
from oncecast.overlay.mesh import Mesh
from oncecast.overlay.plumtree import Plumtree
from oncecast.overlay.recovery import Recovery

__all__ = [
    "Broadcast",
    "Delivered",
    "HyParView",
    "Lost",
    "Mesh",
    "MessageId",
    "NeighborDown",
    "NeighborUp",
    "Plumtree",
    "Publish",
    "Received",
    "Recovery",
]
