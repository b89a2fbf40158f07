"""One timer for all deadlines of a session."""

from __future__ import annotations

from oncecast.client.session.local import NEVER
from oncecast.client.session.records import Tick
from oncecast.kernel.protocol import Protocol


class Alarm:
    def __init__(self, host: Protocol) -> None:
        self._host = host
        self._at = NEVER

    def due(self, at: float) -> None:
        """Make the timer fire no later than `at`."""
        if at < self._at:
            self._at = at
            self._host.later(max(0.0, at - self._host.now), Tick())

    def rang(self) -> None:
        self._at = NEVER
