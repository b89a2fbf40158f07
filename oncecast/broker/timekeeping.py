"""What time a leader says it is: its own wall clock, unless the other replicas outvote it.

The machine believes a stamp that is near its trusted time. While the own wall clock is not near it,
the leader asks the other replicas for theirs, and stamps with the median of a majority. Of an even
number of clocks, the one of the two in the middle counts that is nearer to the trusted time. So one
wrong clock of three, or of two, moves nothing.

A leader also tells how long it has watched time pass since the last stamp, by its own monotonic
clock: an idle group is not one whose clock is wrong. In a group it tells so only while the others
answer, because a clock that jumps has watched nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from oncecast.broker.clock import Clock
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.replication.events import Group

FRESH = 10.0  # seconds that a reading of another replica counts
ASK_EVERY = 2.0


class ReadClock(Value, tag="ReadClock"):
    """Message: what time is it at yours?"""


class ClockRead(Value, tag="ClockRead"):
    at: int


class Timekeeper:
    def __init__(self, protocol: Protocol, group: Group, wall: Callable[[], int]) -> None:
        self._protocol, self._group, self._wall = protocol, group, wall
        self._watched: float | None = None  # when the last stamp was seen; None: not by us
        self._asked = -FRESH
        # When each other replica told its time, by the own monotonic clock, and that time.
        self._readings: dict[NodeId, tuple[float, int]] = {}

    def saw_stamp(self) -> None:
        self._watched = self._protocol.now

    def saw_nothing(self) -> None:
        """The state was replaced: nobody here knows when its last stamp was given."""
        self._watched = None

    @property
    def idle_us(self) -> int:
        """Microseconds since the last stamp was seen; 0 if none was."""
        return 0 if self._watched is None else int((self._protocol.now - self._watched) * 1e6)

    def stamp(self, clock: Clock, step: int) -> int:
        """Return the time of the group, in microseconds."""
        wall = self._wall()
        return wall if self._near(wall, clock, step) else self._median(wall, clock)

    def correction(self, clock: Clock, step: int) -> int:
        """Return by how much the other replicas correct the own wall clock, in microseconds."""
        return self.stamp(clock, step) - self._wall()

    def elapsed(self) -> int:
        """As `idle_us`; but 0 if the other replicas do not confirm the time."""
        return self.idle_us if self._confirmed() else 0

    # -- the clocks of the others --

    def answer(self, asker: NodeId) -> None:
        self._protocol.send(asker, ClockRead(self._wall()))

    def hear(self, sender: NodeId, read: ClockRead) -> None:
        others = self._others()
        if sender in others:
            self._readings[sender] = (self._protocol.now, read.at)
            for gone in [node for node in self._readings if node not in others]:
                del self._readings[gone]

    def look(self, clock: Clock, step: int) -> None:
        """Ask the others if the own clock is not near the trusted time."""
        now = self._protocol.now
        if not self._near(self._wall(), clock, step) and now >= self._asked + ASK_EVERY:
            self._asked = now
            for node in self._others():
                self._protocol.send(node, ReadClock())

    def _near(self, wall: int, clock: Clock, step: int) -> bool:
        return not step or abs(wall - clock.trusted) <= step // 2

    def _median(self, wall: int, clock: Clock) -> int:
        """Return the time that a majority of clocks agrees on, or the own one without a majority.

        It is worked out for each stamp: a wall clock may be set at any moment.
        """
        if not self._confirmed():
            return wall
        times = sorted([wall, *self._fresh()])
        high = len(times) // 2
        middle = times[high - 1 + len(times) % 2 : high + 1]
        return min(middle, key=lambda each: abs(each - clock.trusted))

    def _confirmed(self) -> bool:
        """Whether a majority, with this node, has told its time lately."""
        return 2 * (len(self._fresh()) + 1) > len(self._others()) + 1

    def _fresh(self) -> list[int]:
        """Return what time it is now by the clock of each replica that has told it lately."""
        now, others = self._protocol.now, self._others()
        readings = [self._readings[node] for node in others if node in self._readings]
        return [time + int((now - at) * 1e6) for at, time in readings if 0 <= now - at <= FRESH]

    def _others(self) -> list[NodeId]:
        return [node for node in self._group.nodes() if node != self._protocol.me]
