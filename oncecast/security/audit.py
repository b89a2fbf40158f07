"""Audit log events, and a limit on how many are recorded.

Each login, refused login, denied request and administrative act is one event. Unknown clients can
cause events at any rate, so each source of events has a budget, and so do all sources together. An
event over budget is only counted. The next recorded event includes the count.
"""

from __future__ import annotations

from typing import NamedTuple

LOGIN, REQUEST = "login", "request"
OK, DENIED, FAILED = "ok", "denied", "failed"

TEXT_MAX = 256  # maximum characters per field
SOURCES_MAX = 1000  # maximum sources with a separate budget


class Event(NamedTuple):
    """One line of the audit log. Its fields may contain text chosen by a client."""

    kind: str  # LOGIN or REQUEST
    principal: str  # empty for a client without a login
    verb: str  # how the client logged in, or the verb that the request needs
    object: str  # topic, name or client
    result: str  # OK, DENIED or FAILED
    address: str  # the client's address, or empty if it has disconnected
    request: str = ""  # type of the command or frame
    reason: str = ""  # why a login failed

    def fields(self) -> dict[str, str]:
        """Return the non-empty fields. The principal is always included."""
        named = self._asdict().items()
        return {name: text[:TEXT_MAX] for name, text in named if text or name == "principal"}

    @property
    def source(self) -> tuple[str, str, str]:
        """Return the fields that share a budget. They include the client's host, not its port."""
        return self.kind, self.principal, self.address.rpartition(":")[0]


class Budget:
    """A token bucket: a burst of `burst` events, then one every `every` seconds."""

    __slots__ = ("_at", "_burst", "_every", "_left")

    def __init__(self, burst: int, every: float, now: float) -> None:
        self._burst, self._every = burst, every
        self._left, self._at = float(burst), now

    def take(self, now: float) -> bool:
        gained = max(0.0, now - self._at) / self._every
        self._left, self._at = min(self._burst, self._left + gained), now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class Limit:
    """Decides which events are recorded."""

    def __init__(
        self,
        now: float,
        *,
        burst: int = 20,  # maximum number of events from one source at a time
        every: float = 10.0,  # seconds until a source may report another event
        total_burst: int = 1000,
        total_every: float = 1.0,
    ) -> None:
        self._burst, self._every = burst, every
        self._total = Budget(total_burst, total_every, now)
        self._sources: dict[tuple[str, str, str], Budget] = {}
        self.suppressed = 0  # number of events suppressed since the last recorded event

    def admit(self, event: Event, now: float) -> int | None:
        """Return how many events were suppressed before this one, or None to suppress this one.

        Successful requests are administrative acts, which need a permission. They are all recorded.
        """
        if event.kind != REQUEST or event.result != OK:
            source = self._sources.get(event.source)
            if source is None:
                if len(self._sources) >= SOURCES_MAX:
                    del self._sources[next(iter(self._sources))]
                source = self._sources[event.source] = Budget(self._burst, self._every, now)
            if not source.take(now) or not self._total.take(now):
                self.suppressed += 1
                return None
        before, self.suppressed = self.suppressed, 0
        return before
