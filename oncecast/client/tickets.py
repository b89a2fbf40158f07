"""Who waits for which answer of the session."""

# ruff: noqa: ASYNC109  # what happens when time is over is part of the interface

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from oncecast.client.errors import OncecastError, TimedOut, raised
from oncecast.client.session.local import NoAnswer
from oncecast.kernel.protocol import Value
from oncecast.wire.errors import Refusal


class Tickets:
    def __init__(self) -> None:
        self._last = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    async def wait(
        self,
        request: Callable[[Value], None],
        make: Callable[[int], Value],
        timeout: float | None,
    ) -> Any:
        """Request what `make` makes of a new ticket; return, or raise, what is answered."""
        self._last += 1
        ticket = self._last
        waiter = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        try:
            request(make(ticket))
            return await asyncio.wait_for(waiter, timeout)
        except TimedOut:
            raise
        except TimeoutError:
            raise TimedOut(f"no answer within {timeout:g} s") from None
        finally:
            del self._waiting[ticket]

    def answer(self, ticket: int, outcome: Any) -> None:
        waiter = self._waiting.get(ticket)
        if waiter is None or waiter.done():
            return
        if isinstance(outcome, Refusal | NoAnswer):
            waiter.set_exception(raised(outcome))
        else:
            waiter.set_result(outcome)

    def fail(self, error: OncecastError) -> None:
        """There will be no answers any more."""
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(error)
