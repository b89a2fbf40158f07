"""Logical clocks: Lamport, "Time, Clocks, and the Ordering of Events", CACM 1978.

If one event can have caused another its stamp is lower. Ties are broken by name, so that all nodes
put all stamps into the same order.
"""

from __future__ import annotations

from oncecast.kernel.protocol import NodeId, Value

TIME_MAX = 2**62  # leaves room to count on from it in 64 bits


class Stamp(Value, tag=False, order=True):
    """When, by its node's own count."""

    time: int
    node: NodeId

    @property
    def possible(self) -> bool:
        """Whether an honest node could have made it; what a peer sends need not be."""
        return 1 <= self.time <= TIME_MAX


class LamportClock:
    def __init__(self, me: NodeId) -> None:
        self.me, self.time = me, 0

    def tick(self) -> Stamp:
        """Something happens here: it is later than all that this node has seen."""
        self.time += 1
        return Stamp(self.time, self.me)

    def witness(self, stamp: Stamp) -> None:
        """A message came: what happens from now on is later than its sending."""
        self.time = max(self.time, stamp.time)
