"""What has arrived for one subscription and was not taken yet: hands out each message once.

Taking is the hottest path of a reader, so nothing is noted: what was taken follows from what is
left. Unless told otherwise, taking more acknowledges what was taken before (SVC-3).
"""

from __future__ import annotations

from collections import deque

from oncecast.wire.batch import Message


class Inbox:
    def __init__(self, *, auto_ack: bool) -> None:
        self.queue: deque[Message] = deque()
        self.auto_ack = auto_ack
        self.mark = 0  # when so many are left, the session should hear of it
        self._end = 0  # the offset behind the last in the queue
        self._acked = 0  # by word
        self.last = 0  # so many were taken by the last take

    @property
    def handed(self) -> int:
        """All before it was taken."""
        return self._end - len(self.queue)

    @property
    def ack(self) -> int:
        """All before it is acknowledged."""
        return max(self._acked, self.handed - self.last) if self.auto_ack else self._acked

    @property
    def end(self) -> int:
        return self._end

    # -- what the session says --

    def position(self, offset: int) -> None:
        self.queue.clear()
        self._end = self._acked = offset
        self.mark = self.last = 0

    def arrive(self, messages: list[Message]) -> bool:
        """Add them, if they are what comes next: others belong to where we no longer are."""
        if messages[0].offset != self._end:
            return False
        self.queue.extend(messages)
        self._end += len(messages)
        self.mark = len(self.queue) // 2
        return True

    # -- what the application does --

    def take(self) -> Message | None:
        """After one of these, whoever takes from `queue` itself takes as well."""
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
        """All up to and with the message at `offset`."""
        if not 0 <= offset < self.handed:
            raise ValueError(f"offset {offset} was not handed out yet")
        self._acked = max(self._acked, offset + 1)

    def acknowledge_all(self) -> None:
        self._acked, self.last = self.handed, 0

    def back(self, offset: int) -> int:
        """Hand out again from `offset`; returns what was handed out so far."""
        handed, acked = self.handed, self.ack
        if not 0 <= offset < handed:
            raise ValueError(f"offset {offset} was not handed out yet")
        if offset < acked and self.auto_ack:
            raise ValueError(
                f"offset {offset} was acknowledged when the next message was asked for; "
                "call nack() before that, or subscribe with auto_ack=False"
            )
        if offset < acked:
            raise ValueError(
                f"offset {offset} is acknowledged, only {acked} to {handed - 1} can be handed out "
                "again; call nack() instead of ack(), or seek back"
            )
        self.position(offset)
        # What lies before it is no more acknowledged than it was: that takes a word, or a take.
        self._acked, self.last = acked, offset - acked
        return handed
