"""Decide how long to wait for an answer before a request is resent.

A link that is up loses nothing and keeps the order, so a request is repeated only after silence. A
large message takes a long time on a slow link: while bytes move in either direction, the answer may
still be on its way. The network keepalive detects a dead node. The wait is bounded: if
ANSWERED_WITHIN bytes pass without an answer, the node has dropped the request. If traffic is not
measured, as in the simulator, only the elapsed time counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecast.client.session.alarm import Alarm
from oncecast.client.session.local import NEVER
from oncecast.kernel.backoff import backoff
from oncecast.kernel.protocol import Protocol

if TYPE_CHECKING:
    from oncecast.client.session.routes import Routes

RETRY_MIN, RETRY_MAX = 0.5, 8.0
SLOWEST = 64 * 1024  # bytes per second that even a slow node can store
ANSWERED_WITHIN = 256 * 1024 * 1024  # bytes; a client and a node cannot have more in flight


class Patience:
    """Decides when to repeat a request. `attempts` counts consecutive waits without an answer."""

    __slots__ = (
        "_alarm",
        "_asked_at",
        "_host",
        "_routes",
        "_seen",
        "_storing",
        "_topic",
        "attempts",
        "due",
    )

    def __init__(self, host: Protocol, alarm: Alarm, routes: Routes, topic: str) -> None:
        self._host, self._alarm, self._routes, self._topic = host, alarm, routes, topic
        self.attempts = 0
        self.due = NEVER
        self._asked_at = 0.0  # number of bytes moved at the first check
        self._seen = NEVER  # number of bytes moved at the last check
        self._storing = 0.0  # seconds that the node may need to store the batch of the request

    def begin(self, size: int = 0) -> None:
        """Start waiting for an answer. The node must store `size` bytes before it can answer."""
        self._seen = -1.0  # Most requests are answered before the first check.
        self._storing = size / SLOWEST
        self._wait()

    def pause(self) -> None:
        """Start waiting because the node answered that it is busy."""
        self._seen = NEVER
        self._storing = 0.0
        self._wait()

    def over(self, now: float) -> bool:
        """Return whether it is time to resend. If not, set the alarm for the next check."""
        if now >= self.due:
            if not self._moves():
                return True
            self._wait()
        self._alarm.due(self.due)
        return False

    def _moves(self) -> bool:
        moved = self._routes.moved(self._topic)
        if moved is None:
            return False
        seen, self._seen = self._seen, float(moved)
        if seen < 0:
            self._asked_at = self._seen
        return seen < self._seen < self._asked_at + ANSWERED_WITHIN

    def _wait(self) -> None:
        host = self._host
        longest = backoff(self.attempts, RETRY_MIN, RETRY_MAX)
        wait = (0.5 + 0.5 * host.rng.random()) * longest
        self.due = host.now + wait + self._storing
        self._alarm.due(self.due)
