"""How much more of a subscription may be sent to us: so many messages, and about so many bytes.

Credit is granted by a Fetch, counts down with what arrives, and grows back with what is taken.
"""

from __future__ import annotations

from collections import deque

WINDOW_BYTES = 8 * 1024 * 1024
TOLD_BYTES = WINDOW_BYTES // 8  # that all readings of a client may have got without a word


class Credit:
    """`window` messages, and WINDOW_BYTES, may be under way to us or wait to be taken."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._limit = 0  # the offset where it ends
        self._bytes_limit = 0  # so many bytes may arrive in all
        self._bytes = 0  # arrived, in all
        self._queued: deque[tuple[int, int]] = deque()  # not taken: end and bytes of each batch
        self._queued_bytes = 0
        self.untold_bytes = 0  # arrived since the last grant

    def grant(self, offset: int, handed: int) -> tuple[int, int]:
        """Messages and bytes that may come from `offset` on, when all before `handed` is taken."""
        messages, room = handed + self._window - offset, WINDOW_BYTES - self._queued_bytes
        self._limit, self._bytes_limit = offset + messages, self._bytes + room
        self.untold_bytes = 0
        return messages, max(room, 0)

    def arrived(self, end: int, size: int) -> None:
        """A batch whose messages lie before `end`."""
        self._queued.append((end, size))
        self._queued_bytes += size
        self._bytes += size
        self.untold_bytes += size

    def taken(self, handed: int) -> None:
        while self._queued and self._queued[0][0] <= handed:
            self._queued_bytes -= self._queued.popleft()[1]

    def forget(self) -> None:
        """What has arrived will come again."""
        self._queued.clear()
        self._queued_bytes = 0

    def low(self, expected: int) -> bool:
        """Half of it is used up, when `expected` comes next."""
        left, left_bytes = self._limit - expected, self._bytes_limit - self._bytes
        return left <= self._window // 2 or left_bytes <= WINDOW_BYTES // 2

    def renewable(self, handed: int) -> bool:
        """So much was taken that a new grant is worth a Fetch."""
        gained = handed + self._window - self._limit
        gained_bytes = self._bytes - self._queued_bytes + WINDOW_BYTES - self._bytes_limit
        return gained >= self._window // 2 or gained_bytes >= WINDOW_BYTES // 2
