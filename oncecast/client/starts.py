"""Where reading begins."""

from __future__ import annotations

from oncecast.client.errors import InvalidArgument
from oncecast.wire.commands import FromEarliest, FromNew, FromOffset, FromTime, Start

NEW: Start = FromNew()
EARLIEST: Start = FromEarliest()


SECONDS_MAX = 10**11  # the year 5138


def from_offset(offset: int) -> Start:
    return FromOffset(offset)


def from_time(seconds: float) -> Start:
    """What was put at this time or later, in seconds since 1970: not what `timestamp` counts in."""
    try:
        near = abs(seconds) < SECONDS_MAX
    except TypeError:
        near = False
    if not near:
        raise InvalidArgument(
            f"from_time({seconds!r}): give seconds since 1970; a message's `timestamp` has "
            "microseconds, divide it by 1e6"
        )
    return FromTime(int(seconds * 1e6))
