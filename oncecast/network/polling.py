"""Busy polling: the event loop keeps asking for new data instead of sleeping.

A message then does not wait until the kernel has woken the process. The loop uses a whole core
while it polls. If other programs need that core, polling delays everything, so it stops by itself.
"""

from __future__ import annotations

import asyncio
import resource
from time import perf_counter

from oncecast.network.options import Stats

LOOK_EVERY = 0.01  # seconds between checks while the loop sleeps, and between samples
WINDOW = 0.1  # seconds over which interruptions are counted
# Maximum interruptions per window; on an idle core, a process is interrupted less often.
INTERRUPTIONS_MAX = 3
LATE = 0.002  # seconds after which a poll without a message counts as an interruption
PAUSE_MIN, PAUSE_MAX = 1.0, 60.0  # seconds without polling after the core was contended


class BusyPolling:
    """Decide whether to poll: for `seconds` after a message, unless the core is contended.

    An interruption is an involuntary context switch, or a poll that comes late although the loop
    had nothing to do. Each contended window doubles the pause that follows it. The pause starts
    again at its minimum after the loop has polled for as long as the last pause.
    """

    def __init__(self, seconds: float, now: float) -> None:
        self.seconds = seconds
        self.contended = 0  # number of pauses so far
        self._pause = 0.0  # seconds of the last pause
        self._paused_until = now
        self._messages, self._last_message = 0, now - seconds
        self._last_poll = now
        self._since: float | None = None  # start of polling; None while the loop sleeps
        self._late = 0  # number of late polls so far
        # Start of the window, and number of interruptions before it.
        self._window, self._base = now, 0

    def wants(self, now: float, messages: int, switches: int) -> bool:
        """Return whether to poll again at once. Both counters count from the start of the process.

        The caller calls this after each poll, or after LOOK_EVERY if the last result was False.
        """
        if messages != self._messages:
            self._messages, self._last_message = messages, now
        elif self._since is not None and now - self._last_poll > LATE:
            self._late += 1
        self._last_poll = now
        if now < self._paused_until or now - self._last_message >= self.seconds:
            self._since = None
            return False
        interruptions = switches + self._late
        if self._since is None:
            self._since = self._window = now
            self._base = interruptions
        elif interruptions - self._base > INTERRUPTIONS_MAX:
            self._stop(now)
            return False
        elif now - self._window >= WINDOW:
            self._window, self._base = now, interruptions
            if now - self._since >= self._pause:
                self._pause = 0.0
        return True

    def _stop(self, now: float) -> None:
        self.contended += 1
        self._pause = min(max(PAUSE_MIN, 2 * self._pause), PAUSE_MAX)
        self._paused_until, self._since = now + self._pause, None


class Poller:
    """Keeps an event loop polling while `BusyPolling` wants it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, stats: Stats) -> None:
        self._loop, self._stats = loop, stats
        self._policy = BusyPolling(seconds, perf_counter())
        self._switches, self._sample_at = 0, 0.0
        self._handle: asyncio.Handle = loop.call_soon(self._look)

    def stop(self) -> None:
        self._handle.cancel()

    def _look(self) -> None:
        now = perf_counter()
        if now >= self._sample_at:
            self._switches, self._sample_at = involuntary_switches(), now + LOOK_EVERY
        if self._policy.wants(now, self._stats.messages_in, self._switches):
            # A loop with a callback that is ready polls its sockets without waiting.
            self._handle = self._loop.call_soon(self._look)
        else:
            self._handle = self._loop.call_later(LOOK_EVERY, self._look)


def involuntary_switches() -> int:
    """Return how often another program has taken the core from this thread, or 0 if unknown."""
    thread = getattr(resource, "RUSAGE_THREAD", None)  # only Linux counts for each thread
    return 0 if thread is None else resource.getrusage(thread).ru_nivcsw
