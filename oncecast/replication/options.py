"""The times and limits of a replica group. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GroupOptions:
    size: int = 3  # replicas that a group should have
    heartbeat: float = 1.0
    suspicion: float = 2.0  # silence of a leader that makes others stand; also its lease
    drift: float = 0.01  # by so much a clock may run too fast or too slow
    resend: float = 0.25  # what was not answered is said again
    replace_after: float = 30.0  # a silent member loses its seat to one that offers itself
    compare_every: float = 60.0  # between comparisons of the replicas' states; 0: never

    window_slots: int = 1024  # proposed and not decided
    window_bytes: int = 4 << 20
    accept_bytes: int = 1 << 20  # in one Accept, or Chosen, unless one item is larger
    piece_bytes: int = 1 << 20  # of a state on its way
    unclaimed_after: float = 10.0  # a state nobody fetches any more is let go

    @property
    def ahead_slots(self) -> int:
        """How far ahead of what it has applied a replica accepts: so it stays with a group that
        decides many slots while it fetches one."""
        return max(4096, 4 * self.window_slots)

    @property
    def step_slots(self) -> int:
        """How many slots a replica applies, or gives to another one, in one step."""
        return max(64, self.window_slots)

    def lease(self, bound: float) -> float:
        """How long a leader may rely on the answer of who is bound for so long: by its own slow
        clock, and the fast one of who gave it."""
        return min(bound, self.suspicion) * (1 - self.drift) / (1 + self.drift)
