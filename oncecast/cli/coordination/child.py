"""A command that runs as long as this process may: it, and all that it starts, can be ended."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Sequence
from typing import Any, Self

from oncecast.cli.connecting import complain

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as a shell reports it
LOOK_EVERY = 0.01


class CannotRun(Exception):
    def __init__(self, error: OSError, command: str) -> None:
        super().__init__(f"{command}: {error.strerror}; give a command that can be run after --")
        self.status = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE


async def run_until(
    stop: Coroutine[Any, Any, None], command: Sequence[str], grace: float, **environment: str
) -> int | None:
    """The status of the command; None if it was ended because of `stop`. Raises CannotRun."""
    stopping = asyncio.ensure_future(stop)
    try:
        async with Child(command, grace, **environment) as child:
            ending = asyncio.ensure_future(child.wait())
            try:
                await asyncio.wait([ending, stopping], return_when=asyncio.FIRST_COMPLETED)
                return ending.result() if ending.done() else None
            finally:
                ending.cancel()
    finally:
        stopping.cancel()


class Child:
    """`async with` it; whoever leaves before its end has it ended. Raises CannotRun.

    It is first asked by SIGTERM, and made to by SIGKILL after `grace` seconds.
    """

    def __init__(self, command: Sequence[str], grace: float, **environment: str) -> None:
        self._command, self._grace = command, grace
        self._environment = os.environ | environment

    async def __aenter__(self) -> Self:
        # A session of its own: what it has started ends with it.
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *self._command, env=self._environment, start_new_session=True
            )
        )
        try:
            self._process = await asyncio.shield(starting)
        except OSError as error:
            raise CannotRun(error, self._command[0]) from None
        except asyncio.CancelledError:
            self._process = await starting  # it may run already
            await self._end()
            raise
        return self

    async def wait(self) -> int:
        """Its exit status, as a shell reports it."""
        status = await self._process.wait()
        return status if status >= 0 else 128 - status

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            await self._end()

    async def _end(self) -> None:
        """Who is told once more to end, meanwhile, makes it end at once."""
        self._send(signal.SIGTERM)
        try:
            async with asyncio.timeout(self._grace):
                await self._all_gone()
        except TimeoutError:
            if self._process.returncode is None:  # else it was something that it has started
                complain(f"{self._command[0]} has not ended in {self._grace:g} s, and is killed")
            await self._kill()
        except asyncio.CancelledError:
            await self._kill()
            raise

    async def _all_gone(self) -> None:
        """What it has started may need longer to end than it does."""
        await self._process.wait()
        while self._send(0):  # noqa: ASYNC110  # whose child it is not is not told
            await asyncio.sleep(LOOK_EVERY)

    async def _kill(self) -> None:
        self._send(signal.SIGKILL)
        await self._process.wait()

    def _send(self, number: int) -> bool:
        """Whether anybody is there."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        return True
