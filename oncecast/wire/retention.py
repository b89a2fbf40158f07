"""What a topic keeps beyond, or in spite of, the needs of its subscriptions."""

from __future__ import annotations

from oncecast.kernel.protocol import Value


class Policy(Value, tag="Policy"):
    """By default a message is kept until all subscriptions have acknowledged it, and no longer.

    `age_us` and `bytes_max` keep longer: what is younger, or among the newest so many bytes (both
    given: what is both). With `drop_unread` they are hard limits that do not wait for
    subscriptions: what goes unread is reported, never skipped in silence.
    """

    age_us: int = 0
    bytes_max: int = 0
    keep_all: bool = False
    drop_unread: bool = False
    gossip: bool = False  # on a ring, push it by gossip instead of a tree

    @property
    def retains(self) -> bool:
        """Does it keep anything that no subscription needs?"""
        return self.keep_all or self.age_us > 0 or self.bytes_max > 0

    @property
    def fault(self) -> str:
        """What is wrong with it; nothing if it is a policy."""
        limited = self.age_us > 0 or self.bytes_max > 0
        if self.age_us < 0 or self.bytes_max < 0:
            return "neither an age nor a number of bytes can be negative"
        if self.keep_all and (limited or self.drop_unread):
            return "keeping all excludes an age, a number of bytes and dropping the unread"
        if self.drop_unread and not limited:
            return "dropping the unread needs an age or a number of bytes"
        return ""


DEFAULT = Policy()
