"""Credit: how many messages and bytes of a subscription the node may send.

A Fetch grants credit, and each message that arrives uses up some of it. When the application takes
messages, the reader can grant more.
"""

from __future__ import annotations

from collections import deque

WINDOW_BYTES = 8 * 1024 * 1024
UNREPORTED_BYTES_MAX = WINDOW_BYTES // 8  # maximum bytes that may arrive before the next Fetch


class Credit:
    """The credit of one reader.

    At most `window` messages and about WINDOW_BYTES are in flight or waiting for the application.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._limit = 0  # offset at which the credit ends
        self._bytes_limit = 0  # total bytes at which the credit ends
        self._bytes = 0  # total bytes that have arrived
        self._queued: deque[tuple[int, int]] = deque()  # end offset and size of each queued batch
        self._queued_bytes = 0
        self.unreported_bytes = 0  # number of bytes that have arrived since the last grant
        self.excesses = 0  # number of deliveries beyond the credit

    def grant(self, offset: int, delivered: int) -> tuple[int, int]:
        """Grant new credit from `offset` on. Return how many messages and bytes it allows.

        The application has taken all messages before `delivered`.
        """
        messages, free = delivered + self._window - offset, WINDOW_BYTES - self._queued_bytes
        self._limit, self._bytes_limit = offset + messages, self._bytes + free
        self.unreported_bytes = 0
        return messages, max(free, 0)

    def allows(self, end: int) -> bool:
        """Return whether the credit allows another batch that ends before offset `end`.

        The last batch may exceed the byte limit, because nodes send whole batches.
        """
        return self._bytes < self._bytes_limit and end <= self._limit

    def arrived(self, end: int, size: int) -> None:
        """Count a batch of `size` bytes whose last message is before offset `end`."""
        self._queued.append((end, size))
        self._queued_bytes += size
        self._bytes += size
        self.unreported_bytes += size

    def taken(self, delivered: int) -> None:
        while self._queued and self._queued[0][0] <= delivered:
            self._queued_bytes -= self._queued.popleft()[1]

    def forget(self) -> None:
        """Drop the queued batches, because they will be delivered again."""
        self._queued.clear()
        self._queued_bytes = 0

    def low(self, expected: int) -> bool:
        """Return whether half of the credit is used up. `expected` is the next offset."""
        left, left_bytes = self._limit - expected, self._bytes_limit - self._bytes
        return left <= self._window // 2 or left_bytes <= WINDOW_BYTES // 2

    def renewable(self, delivered: int) -> bool:
        """Return whether a new grant would add at least half a window."""
        gained = delivered + self._window - self._limit
        gained_bytes = self._bytes - self._queued_bytes + WINDOW_BYTES - self._bytes_limit
        return gained >= self._window // 2 or gained_bytes >= WINDOW_BYTES // 2
