"""Neighborhood: make every other member of the group a neighbor in the broadcast overlay.

Needs ViewChanged. Emits NeighborUp and NeighborDown alternately for each peer.
"""

from __future__ import annotations

from random import Random

from oncecast.coordination.protocols.events import ViewChanged
from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.overlay.events import NeighborDown, NeighborUp


class Neighborhood(Protocol):
    name = "neighborhood"
    Observed = ViewChanged

    def __init__(self, me: NodeId, rng: Random) -> None:
        super().__init__(me, rng)
        self.neighbors: tuple[NodeId, ...] = ()

    def observe(self, event: ViewChanged) -> None:
        before, self.neighbors = self.neighbors, tuple(n for n in event.view if n != self.me)
        for node in before:
            if node not in self.neighbors:
                self.emit(NeighborDown(node))
        for node in self.neighbors:
            if node not in before:
                self.emit(NeighborUp(node))
