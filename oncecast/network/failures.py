"""Limits how often a host may guess passwords, without affecting other hosts and users.

A login counts as failed from its start until it succeeds, so concurrent logins are limited as well.
Each user has a budget per host, and each host has a larger budget for all users.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from oncecast.errors import Absent
from oncecast.network.addresses import network_of

# Number of failures allowed at once, then seconds per further failure.
USER_AT_ONCE, USER_SECONDS = 10, 6.0
HOST_AT_ONCE, HOST_SECONDS = 100, 0.6
KEYS_MAX = 20_000  # maximum number of budgets; beyond it, the oldest budgets are dropped


class Failures:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # The time when each budget is full again, by host or by host and user. The oldest key is
        # first.
        self._due: dict[tuple[str, ...], float] = {}

    def begin(self, host: str, user: str) -> None:
        """Count a login, or raise Absent if too many have failed."""
        now = self._clock()
        for key, at_once, seconds in budgets(host, user):
            wait = self._due.get(key, now) - now - (at_once - 1) * seconds
            if wait > 0:
                raise Absent(
                    f"too many failed logins from {host}", f"try again in {wait:.0f} seconds"
                )
        for key, _, seconds in budgets(host, user):
            self._due[key] = max(self._due.pop(key, now), now) + seconds
        while len(self._due) > KEYS_MAX:
            del self._due[next(iter(self._due))]

    def succeeded(self, host: str, user: str) -> None:
        """Stop counting a login that has succeeded."""
        for key, _, seconds in budgets(host, user):
            if key in self._due:
                self._due[key] -= seconds


def budgets(host: str, user: str) -> list[tuple[tuple[str, ...], int, float]]:
    """Return each budget's key, burst and seconds per further failure."""
    network = network_of(host)
    return [
        ((network, user), USER_AT_ONCE, USER_SECONDS),
        ((network,), HOST_AT_ONCE, HOST_SECONDS),
    ]
