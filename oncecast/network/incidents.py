"""Log lines of the form `event key=value key="two words"`, with a rate limit."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Self

from oncecast.network.options import Stats

logger = logging.getLogger("oncecast.network")

LINES_AT_ONCE = 20
LINES_PER_SECOND = 1.0


class Incidents:
    """Counts every incident and logs a limited number of them.

    Unknown peers can cause incidents at any rate, so each kind has a token bucket. The next logged
    line says how many were omitted.
    """

    def __init__(self, stats: Stats, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stats, self._clock = stats, clock
        self._buckets: dict[str, Bucket] = {}

    def report(self, event: str, level: int = logging.WARNING, **facts: object) -> None:
        """Count and log an incident. `event` names a counter in Stats."""
        setattr(self._stats, event, getattr(self._stats, event) + 1)
        bucket = self._buckets.get(event)
        if bucket is None:
            bucket = self._buckets[event] = Bucket(self._clock())
        if bucket.take(self._clock()):
            if bucket.left_out:
                facts["left_out"] = bucket.left_out
                bucket.left_out = 0
            logger.log(level, line(event, facts))


class Bucket:
    def __init__(self, now: float) -> None:
        self.lines = float(LINES_AT_ONCE)
        self.filled_at = now
        self.left_out = 0

    def take(self, now: float) -> bool:
        gained = (now - self.filled_at) * LINES_PER_SECOND
        self.lines, self.filled_at = min(LINES_AT_ONCE, self.lines + gained), now
        if self.lines < 1.0:
            self.left_out += 1
            return False
        self.lines -= 1.0
        return True


class Line(str):
    """A log line that also carries its event and facts, for JSON logs."""

    event: str
    facts: Mapping[str, object]

    def __new__(cls, event: str, facts: Mapping[str, object]) -> Self:
        words = (f"{key}={quoted(str(fact))}" for key, fact in facts.items())
        self = super().__new__(cls, " ".join([event, *words]))
        self.event, self.facts = event, facts
        return self


def line(event: str, facts: Mapping[str, object]) -> Line:
    return Line(event, facts)


def tls_reason(error: ssl.SSLError) -> str:
    """Return the cause in words, without the TLS library's source line."""
    return error.reason.replace("_", " ").lower() if error.reason else str(error)


def quoted(fact: str) -> str:
    """Return a single word unchanged, and other text quoted on one line."""
    if fact.isprintable() and not any(mark in fact for mark in ' ="'):
        return fact
    escaped = fact.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in escaped) + '"'
