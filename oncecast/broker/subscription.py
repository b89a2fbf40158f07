"""A subscription's record in a topic: its cursor and its reader's epoch."""

from __future__ import annotations

from oncecast.broker.queue import Queue


class Subscription:
    """Messages before `cursor` are acknowledged.

    Messages from `cursor` up to but excluding `suspect_below` may have been delivered to an earlier
    reader that did not detach. A shared subscription has a queue instead of a reader.
    """

    __slots__ = (
        "attached",
        "cursor",
        "epoch",
        "incarnation",
        "queue",
        "seek_token",
        "suspect_below",
        "term",
    )

    def __init__(self, epoch: int, cursor: int) -> None:
        self.epoch = epoch
        self.attached = epoch  # the epoch at which the current reader attached
        self.incarnation = ""  # empty if no reader is attached
        self.cursor = cursor
        self.suspect_below = 0
        self.seek_token = ""  # the token of the last seek
        self.term = 0  # the highest term of a member of a consumer group, or 0
        self.queue: Queue | None = None  # None if the subscription is exclusive

    def attach(self, incarnation: str, epoch: int, end: int) -> None:
        """Attach a reader. If it replaces another reader, all messages before `end` are suspect."""
        if self.incarnation:
            self.suspect_below = max(self.suspect_below, end)
        self.incarnation = incarnation
        self.epoch = self.attached = epoch

    def detach(self, delivered: int) -> None:
        self.suspect_below = max(self.suspect_below, delivered)
        self.incarnation = ""

    def acknowledge(self, upto: int) -> None:
        self.cursor = max(self.cursor, upto)

    def seek(self, cursor: int, epoch: int, token: str) -> None:
        """Move the cursor. The new epoch stops acks in flight from undoing the seek."""
        self.cursor = cursor
        self.epoch = epoch
        self.seek_token = token
        if self.queue is not None:
            self.queue.reset(cursor)
