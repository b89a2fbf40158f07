"""Send requests to the client's session and wait for the answers."""

# ruff: noqa: ASYNC109  # timeouts are part of the interface

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from oncecast.client.arguments import check_names, check_sendable, check_wait
from oncecast.client.session import local
from oncecast.errors import Closed, OncecastError, TimedOut
from oncecast.kernel.protocol import Value
from oncecast.wire.errors import Refusal
from oncecast.wire.frames import ClientCommand


class Requests:
    """A client's pending requests. Each has a ticket: a number that the answer repeats."""

    def __init__(
        self,
        ask: Callable[[Value], None],  # passes a request to the session
        timeout: float,
        led: Callable[[], bool],  # whether the group has a leader, as far as the session knows
    ) -> None:
        self._ask, self.led = ask, led
        self.timeout = timeout
        self.loop = asyncio.get_running_loop()
        self.closed: OncecastError | None = Closed("the client is not open", "open it first")
        self._last_ticket = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    def open(self) -> None:
        self.closed = None

    def check_open(self) -> None:
        if self.closed is not None:
            raise self.closed

    def limit_timeout(self, seconds: float) -> None:
        self.timeout = min(self.timeout, seconds)

    def seconds(self, timeout: float | None) -> float:
        """Return `timeout`, or the client's timeout if it is None."""
        if timeout is None:
            return self.timeout
        check_wait(timeout)
        return timeout

    # -- asking --

    async def call(self, command: ClientCommand, timeout: float | None = None) -> Any:
        """Have the node execute `command` once. Return its result or raise its refusal."""
        check_names(command)
        return await self.answer(lambda ticket: local.Do(ticket, command, self.seconds(timeout)))

    async def changes(self, command: ClientCommand) -> bool:
        """Have the node execute `command` once. Return whether it changed anything."""
        return not (await self.call(command)).already

    async def answer(self, make: Callable[[int], Value], timeout: float | None = None) -> Any:
        """Send the request that `make` returns for a new ticket. Return or raise its answer."""
        self.check_open()
        check_sendable(make(0))
        self._last_ticket += 1
        ticket = self._last_ticket
        waiter = self._waiting[ticket] = self.loop.create_future()
        try:
            self._ask(make(ticket))
            return await asyncio.wait_for(waiter, timeout)
        except TimedOut:
            raise
        except TimeoutError:
            raise TimedOut(f"no answer within {timeout:g} s") from None
        finally:
            del self._waiting[ticket]

    def send(self, request: Value) -> None:
        """Send a request that has no answer. Drop it if the client is closed."""
        if self.closed is None:
            self._ask(request)

    # -- answers --

    def handlers(self) -> dict[type[Value], Callable[[Any], None]]:
        return {
            local.Finished: lambda event: self._answered(event.ticket, event.outcome),
            local.Shown: lambda event: self._answered(event.ticket, event.view),
            local.AllDone: lambda event: self._answered(event.ticket, None),
            local.Begun: lambda event: self._answered(event.ticket, event),
        }

    def _answered(self, ticket: int, outcome: Any) -> None:
        waiter = self._waiting.get(ticket)
        if waiter is None or waiter.done():
            return
        if isinstance(outcome, Refusal | local.NoAnswer):
            waiter.set_exception(outcome.raised())
        else:
            waiter.set_result(outcome)

    def fail(self, error: OncecastError) -> None:
        """Raise `error` in all waiting and all later requests."""
        self.closed = error
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(error)
