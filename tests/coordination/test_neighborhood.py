"""Neighborhood: who comes and goes, and never oneself."""

from __future__ import annotations

from random import Random

from oncecast.coordination.protocols.events import ViewChanged
from oncecast.coordination.protocols.neighborhood import Neighborhood
from oncecast.kernel.protocol import Emit, NodeId
from oncecast.overlay.events import NeighborDown, NeighborUp

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


def test_members_that_come_and_go_are_told_once() -> None:
    neighborhood = Neighborhood(A, Random(0))
    neighborhood.observe(ViewChanged((A, B)))
    assert neighborhood.drain() == [Emit(NeighborUp(B))]
    neighborhood.observe(ViewChanged((A, C)))
    assert neighborhood.drain() == [Emit(NeighborDown(B)), Emit(NeighborUp(C))]
    neighborhood.observe(ViewChanged((C,)))
    assert neighborhood.drain() == []
