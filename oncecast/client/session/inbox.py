"""Messages that have arrived for a subscription and wait for the application.

Taking a message is a reader's hottest path, so it updates no counter: the number of messages taken
follows from the number that remain. With `auto_ack`, taking a message acknowledges the messages
before it (SVC-3).
"""

from __future__ import annotations

from collections import deque

from oncecast.wire.message import Message


class Inbox:
    def __init__(self, *, auto_ack: bool) -> None:
        self.queue: deque[Message] = deque()
        self.auto_ack = auto_ack
        self.mark = 0  # queue length at which the session is notified
        self._end = 0  # the offset after the last queued message
        self._acked = 0  # all messages before this offset were acknowledged explicitly
        self.last = 0  # number of messages in the last take

    @property
    def delivered(self) -> int:
        """Return the offset of the next message to take. All messages before it were taken."""
        return self._end - len(self.queue)

    @property
    def ack(self) -> int:
        """Return the offset after the last acknowledged message."""
        return max(self._acked, self.delivered - self.last) if self.auto_ack else self._acked

    @property
    def end(self) -> int:
        return self._end

    # -- from the session --

    def position(self, offset: int) -> None:
        self.queue.clear()
        self._end = self._acked = offset
        self.mark = self.last = 0

    def arrive(self, messages: list[Message]) -> bool:
        """Add the messages. Return False if they do not continue the queue, as after a seek."""
        if messages[0].offset != self._end:
            return False
        self.queue.extend(messages)
        self._end += len(messages)
        self.mark = len(self.queue) // 2
        return True

    # -- from the application --

    def take(self) -> Message | None:
        """Return the next message, or None. The caller may then also pop from `queue` directly."""
        if not self.queue:
            return None
        self.last = 1
        return self.queue.popleft()

    def take_many(self, count: int) -> list[Message]:
        queue = self.queue
        if count >= len(queue):
            taken = list(queue)
            queue.clear()
        else:
            taken = [queue.popleft() for _ in range(count)]
        self.last = len(taken)
        return taken

    def acknowledge(self, offset: int) -> None:
        """Acknowledge all messages up to and including `offset`."""
        if not 0 <= offset < self.delivered:
            raise ValueError(f"offset {offset} has not been delivered yet")
        self._acked = max(self._acked, offset + 1)

    def acknowledge_all(self) -> None:
        self._acked, self.last = self.delivered, 0

    def back(self, offset: int) -> int:
        """Go back to `offset`. Return the offset after the last message taken before that."""
        delivered, acked = self.delivered, self.ack
        if not 0 <= offset < delivered:
            raise ValueError(f"offset {offset} has not been delivered yet")
        if offset < acked and self.auto_ack:
            raise ValueError(
                f"offset {offset} was acknowledged when the next message was requested; "
                "call nack() before that, or subscribe with auto_ack=False"
            )
        if offset < acked:
            raise ValueError(
                f"offset {offset} is already acknowledged (only {acked} to {delivered - 1} can be "
                "redelivered); call nack() instead of ack(), or seek back"
            )
        self.position(offset)
        # Earlier messages that were not acknowledged stay unacknowledged until the next take.
        self._acked, self.last = acked, offset - acked
        return delivered
