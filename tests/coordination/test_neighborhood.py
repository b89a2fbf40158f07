"""Neighborhood reports all other members in the view as neighbors."""

from __future__ import annotations

from random import Random

from oncecast.coordination.protocols.events import ViewChanged
from oncecast.coordination.protocols.neighborhood import Neighborhood
from oncecast.kernel.protocol import Emit, NodeId
from oncecast.overlay.events import NeighborDown, NeighborUp

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


def test_joining_and_leaving_members_are_reported_once() -> None:
    neighborhood = Neighborhood(A, Random(0))
    neighborhood.observe(ViewChanged((A, B)))
    assert neighborhood.drain() == [Emit(NeighborUp(B))]
    neighborhood.observe(ViewChanged((A, C)))
    assert neighborhood.drain() == [Emit(NeighborDown(B)), Emit(NeighborUp(C))]
    neighborhood.observe(ViewChanged((C,)))
    assert neighborhood.drain() == []
