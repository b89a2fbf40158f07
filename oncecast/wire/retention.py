"""The retention policy of a topic."""

# Without `from __future__ import annotations`, because msgspec evaluates annotations more slowly.

from oncecast.kernel.protocol import Value
from oncecast.wire.timing import TIMING_LEVEL


class Policy(Value, tag="Policy"):
    """By default, a message is kept until all subscriptions have acknowledged it.

    `age_us` keeps younger messages longer, and `bytes_max` the newest bytes. If both are set, a
    message must satisfy both. With `drop_unread`, they are hard limits that do not wait for
    subscriptions. Readers are told about messages that were dropped unread.

    A message whose time to live is over becomes a dead letter of each shared subscription that has
    not delivered it. With `drop_expired`, it is dropped instead.
    """

    age_us: int = 0
    bytes_max: int = 0
    keep_all: bool = False
    drop_unread: bool = False
    gossip: bool = False  # on a ring, push messages by gossip instead of a tree
    drop_expired: bool = False

    @property
    def level(self) -> int:
        """Return the feature level that the policy needs."""
        return TIMING_LEVEL if self.drop_expired else 1

    @property
    def retains(self) -> bool:
        """Return whether the policy keeps messages that no subscription needs."""
        return self.keep_all or self.age_us > 0 or self.bytes_max > 0

    @property
    def fault(self) -> str:
        """Return what is wrong with the policy, or "" if it is valid."""
        limited = self.age_us > 0 or self.bytes_max > 0
        if self.age_us < 0:
            return f"the retention age is {self.age_us / 1e6:g} s (minimum 0); use 0 for no limit"
        if self.bytes_max < 0:
            return f"the retention size is {self.bytes_max} bytes (minimum 0); use 0 for no limit"
        if self.keep_all and (limited or self.drop_unread):
            other = "drop_unread" if self.drop_unread else "an age or size limit"
            return f"keep_all cannot be combined with {other}; set only one of them"
        if self.drop_unread and not limited:
            return "drop_unread needs an age or size limit; set one"
        return ""


DEFAULT = Policy()
