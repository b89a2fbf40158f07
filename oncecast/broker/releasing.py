"""The leader's timer for delayed messages: it proposes a Tick as soon as one is due (WRK-5).

The replicated clock decides what is due. The timer only decides when to ask. So a wrong timer can
make a message late, but not early.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from oncecast.broker.events import DelayedDue

if TYPE_CHECKING:
    from oncecast.broker.service import Service

DELAY_MIN = 0.001  # minimum seconds before the timer fires


class Releaser:
    def __init__(self, service: Service, tick: Callable[[], None]) -> None:
        self._service, self._tick = service, tick
        self._at = inf  # when the timer fires

    def follow(self, topic: str) -> None:
        """Set the timer for the topic's next delayed message, unless it fires earlier."""
        found = self._service.machine.registry.delaying.get(topic)
        due = found.delays.due if found is not None and self._service.leading else None
        if due is not None:
            self._wake_at(due)

    def fire(self) -> None:
        self._at = inf
        self.look()

    def look(self) -> None:
        """Release the messages that are due. Set the timer for the next one if it is soon."""
        due = self._service.machine.registry.due if self._service.leading else None
        if due is None:
            return
        if due <= self._service.expected_time():
            self._tick()
        else:
            self._wake_at(due)

    def _wake_at(self, due: int) -> None:
        service = self._service
        wait = max((due - service.expected_time()) / 1e6, DELAY_MIN)
        at = service.now + wait
        if wait < service.maintenance_every and at < self._at:
            self._at = at
            service.later(wait, DelayedDue())
