"""The replicated clock. A single wrong wall clock cannot move it far.

Each stamp comes from the wall clock of the leader that proposed the command. That clock may be off
by a year, so the machine keeps two times:

    now        the newest stamp, trusted or not; new messages are stamped with it
    trusted    the time for computing ages; a disputed stamp expires nothing

Rules
- A stamp within one step of `trusted` is accepted. A later stamp is accepted if the leader has
  measured that much time since the last stamp, because the group was idle.
- Any other stamp is disputed. `trusted` then advances with the stamps, by at most one step each.
- A dispute ends when a stamp agrees with `trusted` again. Stored times after `trusted` then move
  back to it.
- A dispute also ends when the stamps have advanced steadily for `SUSTAINED` steps. The stamps are
  then accepted. If they are ahead, the group was down, and all messages are that much older.
- If they are behind, `trusted` was wrong. All times move back by the difference, so ages stay the
  same. `moved_back` stores the difference. If the stamps later jump forward again, the times move
  forward by it. A clock that was wrong for a while therefore does not age messages.

A single stamp cannot make a message expire more than one step early. With a step of 0, as in older
logs, the clock follows the highest stamp.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

TIME_MAX = 1 << 62
SUSTAINED = 6  # number of steps for which disputed stamps must advance steadily


class Dispute(IntEnum):
    """The direction in which the stamps differ from the trusted time."""

    BEHIND = -1
    NONE = 0
    AHEAD = 1


class Retiming(NamedTuple):
    """A correction of stored times: each time after `above` becomes `rule(time)`.

    The correction preserves the order of the times. The trusted time itself jumps by `shift`, and
    deadlines jump with it, so that nothing ends early or late.
    """

    above: int
    rule: Callable[[int], int]
    shift: int = 0


class Clock:
    __slots__ = ("dispute", "moved_back", "now", "stamp", "sustained", "trusted")

    def __init__(self) -> None:
        self.now = self.trusted = 0
        self.stamp = 0  # the last stamp in the log
        self.dispute = Dispute.NONE
        self.sustained = 0  # how long the disputed stamps have advanced steadily, in microseconds
        self.moved_back = 0

    @property
    def disputed_us(self) -> int:
        """Return how far the last stamp is ahead of trusted time, or 0 if it is undisputed."""
        return self.stamp - self.trusted if self.dispute else 0

    def state(self) -> tuple[int, int, int, int, int]:
        return self.trusted, self.stamp, self.dispute, self.sustained, self.moved_back

    def restore(self, now: int, state: tuple[int, int, int, int, int] | None) -> None:
        """Restore the clock from a snapshot. Older snapshots have no `state`."""
        self.now = now
        trusted, stamp, dispute, *counts = state or (now, now, 0, 0, 0)
        self.trusted, self.stamp, self.dispute = trusted, stamp, Dispute(dispute)
        self.sustained, self.moved_back = counts

    def trusted_after(self, at: int, step: int, elapsed: int) -> int:
        """Return the trusted time after this stamp, without applying it."""
        copy = Clock()
        copy.restore(self.now, self.state())
        copy.pass_time(at, step, elapsed)
        return copy.trusted

    def pass_time(self, at: int, step: int, elapsed: int = 0) -> Retiming | None:
        """Apply a stamp. Return the correction to stored times, or None if they are unchanged."""
        at = min(max(at, 0), TIME_MAX)
        if self.trusted <= at <= self.trusted + step and self.dispute is Dispute.NONE:
            self.now = self.trusted = self.stamp = at  # the common case
            return None
        if not step or not self.trusted:  # an older log, or the first stamp
            self.now = self.trusted = self.stamp = max(self.now, at)
            return None
        passed = min(max(at - self.stamp, 0), step + max(elapsed, 0))
        if at < self.stamp - step:
            self.sustained = 0
        self.stamp = at
        if at > self.trusted + step + max(elapsed, 0):
            return self._ahead(at, step, passed)
        if at < self.trusted - step:
            return self._behind(at, step, passed)
        self.trusted = max(self.trusted, at)
        return self._settle()

    def _ahead(self, at: int, step: int, passed: int) -> Retiming | None:
        self._go_on(Dispute.AHEAD, passed)
        self.now = max(self.now, at)
        if self.sustained < SUSTAINED * step:
            return None
        before = self.trusted
        forward = min(at - before, self.moved_back)
        self.moved_back -= forward
        self.trusted = at
        settled = self._settle() or Retiming(at, lambda time: time)
        if not forward:
            return settled._replace(shift=at - before)
        floor = before + forward
        return Retiming(
            -1,
            lambda time: min(max(floor, time) if time > before else time + forward, at),
            at - before,
        )

    def _behind(self, at: int, step: int, passed: int) -> Retiming | None:
        settled = self._settle() if self.dispute == Dispute.AHEAD else None
        self._go_on(Dispute.BEHIND, passed)
        self.now = self.trusted
        if self.sustained < SUSTAINED * step:
            return settled
        back = self.trusted - at
        self.moved_back += back
        self.trusted = self.now = at
        self._settle()
        return Retiming(-1, lambda time: max(time - back, 0), -back)

    def _go_on(self, dispute: Dispute, passed: int) -> None:
        """Begin a dispute, or track how long the stamps have advanced steadily."""
        if self.dispute != dispute:
            self.dispute, self.sustained = dispute, 0
            return
        self.trusted += passed
        self.sustained += passed

    def _settle(self) -> Retiming | None:
        """End the dispute. Return the correction to times after the trusted time, or None."""
        later, trusted = self.now > self.trusted, self.trusted
        self.dispute, self.sustained, self.now = Dispute.NONE, 0, trusted
        return Retiming(trusted, lambda time: trusted) if later else None
