"""The positions where a subscription or a scan can start."""

from __future__ import annotations

from oncecast.errors import InvalidArgument
from oncecast.wire.commands import FromEarliest, FromNew, FromOffset, FromTime, Start

NEW: Start = FromNew()
EARLIEST: Start = FromEarliest()

SECONDS_MAX = 10**11  # the year 5138


def from_offset(offset: int) -> Start:
    if type(offset) is not int or offset < 0:
        raise InvalidArgument(f"offset is {offset!r:.80}", "use an integer of at least 0, or NEW")
    return FromOffset(offset)


def from_time(seconds: float) -> Start:
    """Start at the first message put at or after `seconds` since 1970."""
    try:
        near = abs(seconds) < SECONDS_MAX
    except TypeError:
        near = False
    if not near:
        raise InvalidArgument(
            f"from_time({seconds!r}) is not a time in seconds since 1970",
            "divide a message's `timestamp`, which is in microseconds, by 1e6",
        )
    return FromTime(int(seconds * 1e6))
