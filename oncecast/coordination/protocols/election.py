"""LeaderElection: the oracle Ω of Chandra, Hadzilacos and Toueg, JACM 1996.

Needs ViewChanged. Gives LeaderElected.

The leader is the candidate with the lowest name among the members that are not suspected. While
suspicions are wrong, nodes may have different leaders, or none: who relies on there being only one
must not rely on this. Once suspicions are right, all have the same one, which is up, for good.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from random import Random

from oncecast.coordination.protocols.events import NOBODY, LeaderElected, ViewChanged
from oncecast.kernel.protocol import NodeId, Protocol


class LeaderElection(Protocol):
    name = "election"
    Observed = ViewChanged

    def __init__(self, me: NodeId, rng: Random, *, candidates: Iterable[NodeId] = ()) -> None:
        """Without candidates, every member is one."""
        super().__init__(me, rng)
        self.candidates = tuple(candidates)
        self.leader = NOBODY

    def observe(self, event: ViewChanged) -> None:
        leader = lowest(event.view, self.candidates)
        if leader != self.leader:
            self.leader = leader
            self.emit(LeaderElected(leader))


def lowest(view: Iterable[NodeId], candidates: Collection[NodeId]) -> NodeId:
    """Ω of these candidates; if there are none, of all."""
    return min((each for each in view if not candidates or each in candidates), default=NOBODY)
