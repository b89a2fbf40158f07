"""The limits, sessions and counters that all requests of one application share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from oncecast.errors import Overloaded
from oncecast.web.exchange import Bodies
from oncecast.web.limits import Limits
from oncecast.web.sessions import Sessions


class Hub:
    def __init__(self, limits: Limits, sessions: Sessions) -> None:
        self.limits, self.sessions = limits, sessions
        self.bodies = Bodies(limits.body_bytes, limits.bodies_bytes, limits.body_timeout)
        self.requests = self.tails = self.waits = 0
        self.closing = asyncio.Event()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request in progress, whose body has arrived. Raise Overloaded for too many."""
        if self.requests - self.waits >= self.limits.requests:
            raise Overloaded(f"requests in progress (limit {self.limits.requests})")
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    @contextmanager
    def tail(self) -> Iterator[None]:
        if self.tails >= self.limits.tails:
            raise Overloaded(f"open tails (limit {self.limits.tails})")
        self.tails += 1
        try:
            yield
        finally:
            self.tails -= 1

    @contextmanager
    def wait(self) -> Iterator[None]:
        if self.waits >= self.limits.waits:
            raise Overloaded(f"requests that wait for messages (limit {self.limits.waits})")
        self.waits += 1
        try:
            yield
        finally:
            self.waits -= 1

    async def close(self) -> None:
        """End all tails and close all sessions."""
        self.closing.set()
        await self.sessions.close()
