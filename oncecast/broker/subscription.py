"""What a topic knows of one subscription: its cursor, and who may move it."""

from __future__ import annotations


class Subscription:
    """All before `cursor` is acknowledged. All from there to before `suspect_below` may have been
    handed out by an earlier life that ended without a word.
    """

    __slots__ = ("attached", "cursor", "epoch", "incarnation", "seek_token", "suspect_below")

    def __init__(self, epoch: int, cursor: int) -> None:
        self.epoch = epoch
        self.attached = epoch  # the epoch with which the present life began
        self.incarnation = ""  # empty: nobody is attached
        self.cursor = cursor
        self.suspect_below = 0
        self.seek_token = ""  # the token of the last seek

    def attach(self, incarnation: str, epoch: int, end: int) -> None:
        """A new life begins. One that is still there may have been handed all before `end`."""
        if self.incarnation:
            self.suspect_below = max(self.suspect_below, end)
        self.incarnation = incarnation
        self.epoch = self.attached = epoch

    def detach(self, handed: int) -> None:
        self.suspect_below = max(self.suspect_below, handed)
        self.incarnation = ""

    def acknowledge(self, upto: int) -> None:
        self.cursor = max(self.cursor, upto)

    def seek(self, cursor: int, epoch: int, token: str) -> None:
        """A new epoch, or an ack that is on its way would undo it."""
        self.cursor = cursor
        self.epoch = epoch
        self.seek_token = token
