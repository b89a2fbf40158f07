"""End a command cleanly on SIGTERM, SIGINT or SIGHUP."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType


async def ended_by_signals(
    work: Awaitable[int], ended: int | None = None, caught: Callable[[], None] = lambda: None
) -> int:
    """Return the status of `work`. SIGTERM and SIGINT cancel it.

    The status after a signal is `ended`, or 128 plus the signal number, as in a shell. `caught` is
    called before the work is cancelled.
    """
    import asyncio

    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    numbers: list[int] = []

    def end(number: int) -> None:
        caught()
        numbers.append(number)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not numbers:
            raise
        return 128 + numbers[0] if ended is None else ended
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Raise SystemExit in the main thread on SIGTERM, and on SIGHUP when the terminal is closed."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {each: signal.signal(each, end) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
