"""A child process that runs only while this process leads or holds a lock."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Sequence
from tempfile import TemporaryFile
from typing import Any, Self

from oncecast.cli.connecting import complain

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # the exit statuses of a shell
LOOK_EVERY = 0.01


class CannotRun(Exception):
    def __init__(self, error: OSError, command: str) -> None:
        super().__init__(f"{command}: {error.strerror}; put an executable command after --")
        self.status = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE


async def run_until(
    stop: Coroutine[Any, Any, None], command: Sequence[str], grace: float, **environment: str
) -> int | None:
    """Run the command until `stop` returns. Return its exit status, or None if it was stopped.

    Raise CannotRun if the command cannot be started.
    """
    stopping = asyncio.ensure_future(stop)
    try:
        async with Child(command, grace, environment) as child:
            ending = asyncio.ensure_future(child.wait())
            try:
                await asyncio.wait([ending, stopping], return_when=asyncio.FIRST_COMPLETED)
                return ending.result() if ending.done() else None
            finally:
                ending.cancel()
    finally:
        stopping.cancel()


class Child:
    """A child process that ends when its `async with` block ends.

    It receives SIGTERM first and SIGKILL after `grace` seconds. Entering the block raises CannotRun
    if the command cannot be started. `feed` is its standard input; by default it has that of this
    process.
    """

    def __init__(
        self,
        command: Sequence[str],
        grace: float,
        environment: dict[str, str] | None = None,
        feed: bytes | None = None,
    ) -> None:
        self._command, self._grace, self._feed = command, grace, feed
        self._environment = os.environ | (environment or {})

    async def __aenter__(self) -> Self:
        starting = asyncio.ensure_future(self._start())
        try:
            self._process = await asyncio.shield(starting)
        except OSError as error:
            raise CannotRun(error, self._command[0]) from None
        except asyncio.CancelledError:
            self._process = await starting  # the process may already have started
            await self._end()
            raise
        return self

    async def _start(self) -> asyncio.subprocess.Process:
        # Use a file for the standard input: a command may end without reading it.
        with TemporaryFile() as file:
            file.write(self._feed or b"")
            file.seek(0)
            return await asyncio.create_subprocess_exec(
                *self._command,
                stdin=None if self._feed is None else file,
                env=self._environment,
                start_new_session=True,  # so that signals also reach its children
            )

    async def wait(self) -> int:
        """Return the exit status as a shell would report it."""
        status = await self._process.wait()
        return status if status >= 0 else 128 - status

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            await self._end()

    async def _end(self) -> None:
        """End the process. If this call is cancelled, kill the process at once."""
        self._send(signal.SIGTERM)
        try:
            async with asyncio.timeout(self._grace):
                await self._all_gone()
        except TimeoutError:
            if self._process.returncode is None:  # otherwise only its children are left
                complain(f"{self._command[0]} did not exit within {self._grace:g} s and was killed")
            await self._kill()
        except asyncio.CancelledError:
            await self._kill()
            raise

    async def _all_gone(self) -> None:
        """Wait until the process and all its children have ended."""
        await self._process.wait()
        while self._send(0):  # noqa: ASYNC110  # only a parent is notified of an end
            await asyncio.sleep(LOOK_EVERY)

    async def _kill(self) -> None:
        self._send(signal.SIGKILL)
        await self._process.wait()

    def _send(self, number: int) -> bool:
        """Send a signal to the process group. Return whether the group still exists."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        return True
