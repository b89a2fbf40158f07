"""Choose the time for a leader's stamps, so that a minority of wrong wall clocks cannot move it.

A new leader stamps nothing until a majority of its group has answered with its wall clock. After
that, its time advances with its own monotonic clock. Otherwise it moves only as far as a majority
of all clocks agrees: forward to a time that a majority has reached, or back to a time that a
majority has not passed. Without a majority of answers, it only follows the monotonic clock. A
leader that is alone follows its own wall clock.

A group's first stamp is the earliest time that a majority has not passed. If it is ahead, the
machine can correct it later without a change of ages.

While the machine disputes the stamps, their pace moves the trusted time. So they advance only with
the leader's monotonic clock. The leader jumps further ahead only if the jump ends the dispute.

The leader asks while its wall clock is more than `SLACK` away from its time. Within `SLACK`, it
stamps with its wall clock.

A leader also reports the time since the last stamp, by its monotonic clock. Otherwise an idle group
would look like a wrong clock. In a group of several replicas, it does so only while a majority
answers, because a monotonic clock may jump too.
"""

from __future__ import annotations

from collections.abc import Callable

from oncecast.broker.clock import Clock, Dispute
from oncecast.broker.events import ClockOutvoted, ClockRead, ReadClock
from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.replication.events import Group

FRESH = 10.0  # seconds for which another replica's answer is valid
ASK_EVERY = 2.0
SLACK = 1_000_000  # microseconds by which a wall clock may differ without being checked


class Timekeeper:
    def __init__(self, protocol: Protocol, group: Group, wall: Callable[[], int]) -> None:
        self._protocol, self._group, self._wall = protocol, group, wall
        self._watched: float | None = None  # when this node saw the last stamp; None if never
        self._asked = -FRESH
        # The monotonic clock and the leader's time at that moment; None before the first agreement.
        self._time: tuple[float, int] | None = None
        # By replica: the time its answer arrived by the monotonic clock, and its wall clock.
        self._readings: dict[NodeId, tuple[float, int]] = {}
        self._outvoted = False

    def begin_term(self) -> None:
        """Forget the time and the answers, because the clocks may have changed since."""
        self._time, self._asked = None, -FRESH
        self._readings.clear()

    def ready(self, step: int) -> bool:
        """Return whether this leader may stamp commands in its term."""
        return not step or self._time is not None or self._confirmed()

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
        if not step:
            return wall
        expected = self._expected(clock)
        if self._time is not None and abs(wall - expected) <= SLACK:
            return wall
        at = self._agreed(wall, expected)
        return expected if at > expected and self._goes_on(at, clock, step) else at

    def go_on_from(self, at: int) -> None:
        """Set the leader's time to `at`, unless the two differ by at most `SLACK`."""
        if self._time is None or abs(at - self._passed(*self._time)) > SLACK:
            self._time = self._protocol.now, at

    def correction(self, clock: Clock, step: int) -> int:
        """Return how far the stamp is ahead of this node's wall clock, in microseconds."""
        return 0 if self._time is None else self.stamp(clock, step) - self._wall()

    def note_outvoted(self, clock: Clock, step: int) -> ClockOutvoted | None:
        """Return an event if the other clocks have just outvoted this node's, or no longer do."""
        correction = self.correction(clock, step)
        outvoted = abs(correction) > step
        if outvoted == self._outvoted:
            return None
        self._outvoted = outvoted
        return ClockOutvoted(-correction if outvoted else 0)

    def elapsed(self) -> int:
        """Return `idle_us`, or 0 if no majority of replicas has answered recently."""
        return self.idle_us if self._confirmed() else 0

    # -- the leader's time --

    def _expected(self, clock: Clock) -> int:
        """Return the leader's time by its monotonic clock, or 0 before the group's first stamp."""
        if self._time is not None:
            return self._passed(*self._time)
        return clock.stamp + self.idle_us if clock.trusted else 0

    def _passed(self, since: float, at: int) -> int:
        return at + int((self._protocol.now - since) * 1e6)

    def _agreed(self, wall: int, expected: int) -> int:
        """Return the time to which a majority of all clocks moves the expected time."""
        if not self._confirmed():
            return expected or wall
        times = sorted([wall, *self._fresh()])
        # The largest number of clocks that is not a majority.
        others = (len(self._others()) + 1) // 2
        if not expected:
            return times[others]
        return min(max(expected, times[-1 - others]), times[others])

    def _goes_on(self, at: int, clock: Clock, step: int) -> bool:
        """Return whether a stamp continues the current dispute."""
        if clock.dispute is Dispute.AHEAD:
            return at > clock.trusted + step
        return clock.dispute is Dispute.BEHIND and at < clock.trusted - step

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
        """Ask the other replicas for the time if this leader's clock is not enough.

        Ask more often while commands cannot be proposed.
        """
        now = self._protocol.now
        pause = ASK_EVERY if self.ready(step) else 0.0
        if self._unsure(clock, step) and now >= self._asked + pause:
            self._asked = now
            for node in self._others():
                self._protocol.send(node, ReadClock())

    def _unsure(self, clock: Clock, step: int) -> bool:
        """Return whether the wall clock is away from the leader's time or the trusted time."""
        wall = self._wall()
        away = self._time is None or abs(wall - self._expected(clock)) > SLACK
        return bool(step) and (away or abs(wall - clock.trusted) > step // 2)

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
