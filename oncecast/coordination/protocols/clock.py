"""Logical clocks: Lamport, "Time, Clocks, and the Ordering of Events", CACM 1978.

If one event can have caused another, it has the lower stamp. The name of the node breaks ties, so
all nodes sort stamps in the same order.
"""

from __future__ import annotations

from oncecast.kernel.protocol import NodeId, Value

TIME_MAX = 2**62  # leaves space for later times in a 64-bit integer


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
        """Return a stamp for a local event. It is later than every stamp this node has seen."""
        self.time += 1
        return Stamp(self.time, self.me)

    def witness(self, stamp: Stamp) -> None:
        """Advance the clock to the stamp of a received message, so that the next tick is later."""
        self.time = max(self.time, stamp.time)
