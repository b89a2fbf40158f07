"""Check the times of a put: `delay` or `at`, and `ttl`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeGuard

from oncecast.errors import InvalidArgument
from oncecast.wire.timing import DAYS_MAX, TIMING_MAX_US, Timing

if TYPE_CHECKING:
    from datetime import datetime

SECONDS_MAX = TIMING_MAX_US // 1_000_000


def timing_of(delay: float | None, at: float | datetime | None, ttl: float | None) -> Timing | None:
    """Return when the messages of a put become visible and expire, or None for a plain put."""
    if delay is not None and at is not None:
        raise InvalidArgument("the put has both delay and at", "use only one of them")
    wait = 0.0
    if delay is not None:
        if not is_number(delay) or not 0 <= delay <= SECONDS_MAX:
            limits = f"use a number of seconds from 0 to {SECONDS_MAX:,} ({DAYS_MAX} days)"
            raise InvalidArgument(f"delay is {delay!r:.80}", limits)
        wait = delay
    due = 0.0 if at is None else due_at(at)
    if due:
        wait = due - time.time()
    if ttl is not None:
        if not is_number(ttl) or not 0 < ttl <= SECONDS_MAX:
            limits = f"use a number of seconds above 0, up to {SECONDS_MAX:,} ({DAYS_MAX} days)"
            raise InvalidArgument(f"ttl is {ttl!r:.80}", limits)
        if ttl <= wait:
            fact = f"ttl is {ttl:g} s, but the message is due in {wait:g} s"
            raise InvalidArgument(fact, "use a ttl that is longer than the delay")
    timing = Timing(micros(delay), micros(due), max(micros(ttl), 1) if ttl is not None else 0)
    return timing if timing != Timing() else None


def due_at(at: object) -> float:
    """Return a due time in seconds since 1970."""
    from datetime import datetime

    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise InvalidArgument(
                f"at is {at.isoformat()}, without a time zone", "use a datetime with a time zone"
            )
        at = at.timestamp()
    if not is_number(at) or not 0 <= at <= time.time() + SECONDS_MAX:
        raise InvalidArgument(
            f"at is {at!r:.80}",
            f"use a time within the next {DAYS_MAX} days, in seconds since 1970 or as a datetime",
        )
    return at


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def micros(seconds: float | None) -> int:
    return round((seconds or 0) * 1e6)
