"""Where reading begins."""

from __future__ import annotations

from oncecast.pubsub.commands import FromEarliest, FromNew, FromOffset, FromTime, Start

NEW: Start = FromNew()
EARLIEST: Start = FromEarliest()


def from_offset(offset: int) -> Start:
    return FromOffset(offset)


def from_time(seconds: float) -> Start:
    """What was put at this time or later, in seconds since 1970."""
    return FromTime(int(seconds * 1e6))
