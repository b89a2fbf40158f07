"""Timeouts and limits of a replica group. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from oncecast.replication.quorum import SIZE_MAX

PIECES = 64


@dataclass(frozen=True, kw_only=True)
class GroupOptions:
    size: int = 3  # target number of replicas in a group
    heartbeat: float = 1.0
    # Seconds of silence after which a leader is suspected; also the duration of a lease.
    suspicion: float = 2.0
    drift: float = 0.01  # maximum drift of a clock, as a fraction
    resend: float = 0.25  # seconds before an unanswered message is sent again
    replace_after: float = 30.0  # seconds of silence before a newcomer replaces a member
    compare_every: float = 60.0  # seconds between state comparisons; 0 for never

    window_slots: int = 1024  # maximum number of slots that are proposed and not yet decided
    window_bytes: int = 4 << 20
    accept_bytes: int = 1 << 20  # maximum bytes per Accept, unless one item is larger
    piece_bytes: int = 1 << 20  # minimum bytes per snapshot piece
    unclaimed_after: float = 10.0  # seconds before an unfetched snapshot is deleted
    ahead_min: int = 4096  # lower bound for `ahead_slots`

    def __post_init__(self) -> None:
        sizes = ("window_slots", "window_bytes", "accept_bytes", "piece_bytes", "ahead_min")
        for name in ("size", *sizes):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.size > SIZE_MAX:
            raise ValueError(f"size is {self.size}; it must be at most {SIZE_MAX}")
        for name in ("heartbeat", "suspicion", "resend", "unclaimed_after"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)} s; it must be above 0")
        for name in ("replace_after", "compare_every"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)} s; it must not be negative")
        if not 0 <= self.drift < 1:
            raise ValueError(f"drift is {self.drift}; it must be at least 0 and below 1")
        if self.suspicion <= self.heartbeat:
            raise ValueError(
                f"suspicion is {self.suspicion} s and heartbeat is {self.heartbeat} s; suspicion "
                "must be longer, or every leader would be suspected between two heartbeats"
            )

    @property
    def ahead_slots(self) -> int:
        """Return how many slots beyond the last applied slot a replica accepts.

        The margin lets a replica keep up with a group that decides many slots while it fetches one.
        """
        return max(self.ahead_min, 4 * self.window_slots)

    @property
    def give_bytes(self) -> int:
        """Return how many bytes to send at once to a replica that is catching up.

        One answer must carry more than the group decides in a round trip. Otherwise the other
        replica would never catch up.
        """
        return max(1 << 16, self.accept_bytes)

    @property
    def promise_bytes(self) -> int:
        """Return the maximum size of the votes in a Promise, so that it fits in a frame."""
        return max(1 << 16, 4 * self.window_bytes)

    @property
    def step_slots(self) -> int:
        """Return how many slots a replica applies, or sends to another replica, in one step."""
        return max(64, self.window_slots)

    def piece_size(self, state_bytes: int) -> int:
        """Return how many bytes of a snapshot a replica sends at once.

        Each piece takes a round trip, so a small snapshot has at most `PIECES` pieces. With more,
        the next snapshot could be taken before this one has arrived.
        """
        return max(self.piece_bytes, min(ceil(state_bytes / PIECES), 1 << 16))

    def lease(self, bound: float) -> float:
        """Return how long a leader may rely on an answer that binds its sender for `bound` seconds.

        The leader's clock may be slow, and the sender's clock may be fast.
        """
        return min(bound, self.suspicion) * (1 - self.drift) / (1 + self.drift)
