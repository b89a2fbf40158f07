"""LeaderElection: the oracle Ω of Chandra, Hadzilacos and Toueg, JACM 1996.

Needs ViewChanged. Emits LeaderElected.

The leader is the candidate with the lowest name among the members that are not suspected. While
suspicions are wrong, nodes can have different leaders or none. Do not use the election where a
second leader does harm. Once suspicions are correct, all nodes have the same running leader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from random import Random

from oncecast.coordination.protocols.events import NO_NODE, LeaderElected, ViewChanged
from oncecast.kernel.protocol import NodeId, Protocol


class LeaderElection(Protocol):
    name = "election"
    Observed = ViewChanged

    def __init__(self, me: NodeId, rng: Random, *, candidates: Iterable[NodeId] = ()) -> None:
        """Create an election. If `candidates` is empty, every member is a candidate."""
        super().__init__(me, rng)
        self.candidates = tuple(candidates)
        self.leader = NO_NODE

    def observe(self, event: ViewChanged) -> None:
        leader = lowest(event.view, self.candidates)
        if leader != self.leader:
            self.leader = leader
            self.emit(LeaderElected(leader))


def lowest(view: Iterable[NodeId], candidates: Collection[NodeId]) -> NodeId:
    """Return the lowest candidate in the view, or NO_NODE if there is none.

    If `candidates` is empty, every member is a candidate.
    """
    return min((each for each in view if not candidates or each in candidates), default=NO_NODE)
