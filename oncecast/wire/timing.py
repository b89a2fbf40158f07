"""When messages become visible, and how long they may be delivered (WRK-5).

A put can carry a `Timing`. With a delay, its messages wait outside the topic. They enter the topic
when they are due, and get their offsets then. So each kind of reader sees them like any other
messages, but not early.

With a time to live, a shared subscription does not lease the messages after that time. Time to live
counts from the put, as the delay does.

Durations count from the decision of the put, by the trusted time. These fields need feature level
4. All times are in microseconds.
"""

from __future__ import annotations

from oncecast.kernel.protocol import Value

TIMING_LEVEL = 4  # the feature level of all commands and rules about delays and times to live

# Never change these limits: all replicas must compute the same result for the same command.
DAYS_MAX = 366
TIMING_MAX_US = DAYS_MAX * 24 * 3600 * 1_000_000
DELAYED_MAX = 1_000_000  # maximum number of delayed batches of one topic
RELEASED_MAX = 1000  # maximum number of delayed batches of one topic that one Tick releases


class Timing(Value, tag=False):
    delay_us: int = 0
    due_us: int = 0  # microseconds since 1970; 0 if the time is not fixed
    ttl_us: int = 0  # time to live in microseconds; 0 for no limit

    @property
    def delays(self) -> bool:
        """Return whether the messages may have to wait before they enter their topic."""
        return self.delay_us > 0 or self.due_us > 0

    @property
    def fault(self) -> str:
        """Return what is wrong with the timing, or "" if it is valid."""
        if not 0 <= self.delay_us <= TIMING_MAX_US:
            return beyond("delay", self.delay_us)
        if not 0 <= self.ttl_us <= TIMING_MAX_US:
            return beyond("time to live", self.ttl_us)
        if self.due_us < 0:
            return f"the due time is {self.due_us} µs (minimum 0); use microseconds since 1970"
        if self.delay_us and self.due_us:
            return "the put has both a delay and a due time; use only one of them"
        if 0 < self.ttl_us <= self.delay_us:
            return (
                f"the time to live is {self.ttl_us / 1e6:g} s, but the delay is "
                f"{self.delay_us / 1e6:g} s; use a longer time to live"
            )
        return ""

    def fault_at(self, now: int) -> str:
        """Return what is wrong with the timing of a put at the time `now`, or ""."""
        if self.due_us - now > TIMING_MAX_US:
            return (
                f"the due time is {(self.due_us - now) / 86_400e6:,.0f} days away (limit "
                f"{DAYS_MAX}); choose an earlier time"
            )
        return self.fault


def beyond(what: str, us: int) -> str:
    return (
        f"the {what} is {us / 1e6:g} s (limits 0 and {DAYS_MAX} days); "
        f"choose a {what} within the limits"
    )
