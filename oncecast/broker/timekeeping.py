"""Choose the time for a leader's stamps: its own wall clock, unless other replicas outvote it.

The machine accepts a stamp near its trusted time. If the leader's clock is not near it, the leader
asks the other replicas for their clocks, and stamps with the median of a majority. With an even
number of clocks, it takes the middle one nearer to the trusted time. One wrong clock out of two or
three therefore has no effect.

A leader also reports the time since the last stamp, by its monotonic clock. Otherwise an idle group
would look like a wrong clock. In a group of several replicas, it does so only while a majority
answers, because a monotonic clock may jump too.
"""

from __future__ import annotations

from collections.abc import Callable

from oncecast.broker.clock import Clock
from oncecast.broker.events import ClockRead, ReadClock
from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.replication.events import Group

FRESH = 10.0  # seconds for which another replica's answer is valid
ASK_EVERY = 2.0


class Timekeeper:
    def __init__(self, protocol: Protocol, group: Group, wall: Callable[[], int]) -> None:
        self._protocol, self._group, self._wall = protocol, group, wall
        self._watched: float | None = None  # when this node saw the last stamp; None if never
        self._asked = -FRESH
        # By replica: the time its answer arrived by the monotonic clock, and its wall clock.
        self._readings: dict[NodeId, tuple[float, int]] = {}

    def saw_stamp(self) -> None:
        self._watched = self._protocol.now

    def saw_nothing(self) -> None:
        """Discard the time of the last stamp, because a snapshot has replaced the state."""
        self._watched = None

    @property
    def idle_us(self) -> int:
        """Return the microseconds since the last stamp was seen, or 0 if none was."""
        return 0 if self._watched is None else int((self._protocol.now - self._watched) * 1e6)

    def stamp(self, clock: Clock, step: int) -> int:
        """Return the time for the next stamp, in microseconds since 1970."""
        wall = self._wall()
        return wall if self._near(wall, clock, step) else self._median(wall, clock)

    def correction(self, clock: Clock, step: int) -> int:
        """Return how far the stamp is ahead of this node's wall clock, in microseconds."""
        return self.stamp(clock, step) - self._wall()

    def elapsed(self) -> int:
        """Return `idle_us`, or 0 if no majority of replicas has answered recently."""
        return self.idle_us if self._confirmed() else 0

    # -- clocks of the other replicas --

    def answer(self, asker: NodeId) -> None:
        self._protocol.send(asker, ClockRead(self._wall()))

    def hear(self, sender: NodeId, read: ClockRead) -> None:
        others = self._others()
        if sender in others:
            self._readings[sender] = (self._protocol.now, read.at)
            for gone in [node for node in self._readings if node not in others]:
                del self._readings[gone]

    def look(self, clock: Clock, step: int) -> None:
        """Ask the other replicas for the time if this node's clock is not near the trusted time."""
        now = self._protocol.now
        if not self._near(self._wall(), clock, step) and now >= self._asked + ASK_EVERY:
            self._asked = now
            for node in self._others():
                self._protocol.send(node, ReadClock())

    def _near(self, wall: int, clock: Clock, step: int) -> bool:
        return not step or abs(wall - clock.trusted) <= step // 2

    def _median(self, wall: int, clock: Clock) -> int:
        """Return the median of a majority of clocks, or `wall` without a majority.

        This is computed for each stamp, because a wall clock may be changed at any moment.
        """
        if not self._confirmed():
            return wall
        times = sorted([wall, *self._fresh()])
        high = len(times) // 2
        middle = times[high - 1 + len(times) % 2 : high + 1]
        return min(middle, key=lambda each: abs(each - clock.trusted))

    def _confirmed(self) -> bool:
        """Return whether a majority of replicas, including this one, has reported recently."""
        return 2 * (len(self._fresh()) + 1) > len(self._others()) + 1

    def _fresh(self) -> list[int]:
        """Return the current time according to each other replica that answered recently."""
        now, others = self._protocol.now, self._others()
        readings = [self._readings[node] for node in others if node in self._readings]
        return [time + int((now - at) * 1e6) for at, time in readings if 0 <= now - at <= FRESH]

    def _others(self) -> list[NodeId]:
        return [node for node in self._group.nodes() if node != self._protocol.me]
