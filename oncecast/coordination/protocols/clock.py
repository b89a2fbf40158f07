"""Logical clocks: Lamport, "Time, Clocks, and the Ordering of Events", CACM 1978.

If one event can have caused another, its stamp is lower. The node's name breaks ties, so all nodes
sort stamps in the same order.
"""

from __future__ import annotations

from oncecast.kernel.protocol import NodeId, Value

TIME_MAX = 2**62  # later times still fit into 64 bits


class Stamp(Value, tag=False, order=True):
    """A logical time, and the node that counts it."""

    time: int
    node: NodeId

    @property
    def possible(self) -> bool:
        """Return whether a correct node could have created this stamp."""
        return 1 <= self.time <= TIME_MAX


class LamportClock:
    def __init__(self, me: NodeId) -> None:
        self.me, self.time = me, 0

    def tick(self) -> Stamp:
        """Return a stamp for a local event, later than every stamp this node has seen."""
        self.time += 1
        return Stamp(self.time, self.me)

    def witness(self, stamp: Stamp) -> None:
        """Advance the clock past the stamp of a received message."""
        self.time = max(self.time, stamp.time)
