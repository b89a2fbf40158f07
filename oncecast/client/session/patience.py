"""How long to wait for an answer before it is asked for again.

A link that is up loses nothing and keeps the order, so only silence justifies a repetition. What is
large takes its time on a slow link: as long as bytes move, in either direction, the answer may be
among them or behind them; and what we sent may stand in queues that nobody sees. That the other
side is dead is for the keepalive to say. But nothing is waited for without end: whatever was asked
is answered within so many bytes, or a node has dropped it. Where nobody can say what moves, as in
the simulator, time alone counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecast.client.session.local import NEVER

if TYPE_CHECKING:
    from oncecast.client.session.client import ClientSession

RETRY_MIN, RETRY_MAX = 0.5, 8.0
SLOWEST = 64 * 1024  # bytes a second that are stored at least, over whatever queues and disks
ANSWERED_WITHIN = 256 * 1024 * 1024  # bytes: more than a node and a client have under way at once


class Patience:
    """`attempts` counts how often it was over in a row; only an answer sets it back."""

    __slots__ = ("_asked_at", "_seen", "_session", "_storing", "_topic", "attempts", "due")

    def __init__(self, session: ClientSession, topic: str) -> None:
        self._session, self._topic = session, topic
        self.attempts = 0
        self.due = NEVER
        self._asked_at = 0.0  # what had moved when we first looked, and when we last did
        self._seen = NEVER
        self._storing = 0.0  # seconds

    def begin(self, size: int = 0) -> None:
        """Something was asked for, or has come; `size` bytes must be stored for the next answer."""
        self._seen = -1.0  # most is answered before anybody looks
        self._storing = size / SLOWEST
        self._wait()

    def pause(self) -> None:
        """The node was heard, and wants to be left alone for a while."""
        self._seen = NEVER
        self._storing = 0.0
        self._wait()

    def over(self, now: float) -> bool:
        """Whether it is time to ask again; otherwise somebody looks again when it may be."""
        if now >= self.due:
            if not self._moves():
                return True
            self._wait()
        self._session.due(self.due)
        return False

    def _moves(self) -> bool:
        moved = self._session.moved
        if moved is None:
            return False
        seen, self._seen = self._seen, float(moved(self._session.ways.of(self._topic).node))
        if seen < 0:
            self._asked_at = self._seen
        return seen < self._seen < self._asked_at + ANSWERED_WITHIN

    def _wait(self) -> None:
        session = self._session
        longest = longest_wait(self.attempts) if self.attempts else RETRY_MIN
        wait = (0.5 + 0.5 * session.rng.random()) * longest
        self.due = session.now + wait + self._storing
        session.due(self.due)


def longest_wait(attempts: int) -> float:
    """Doubles with each attempt; what is waited is drawn below it, lest all ask in step."""
    return min(RETRY_MAX, RETRY_MIN * 2.0 ** min(attempts, 10))
