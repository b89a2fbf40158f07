"""Fair turns: clients share the loop, so that no client holds it for long.

A client may send thousands of frames in one write. They are handled for at most `TURN_SECONDS` in
one turn of the loop, all clients together. The rest waits, and the connection reads nothing more.
Splitting bytes into frames is work, too, so bytes wait unsplit. A sync to disk waits for the end of
a turn, so turns are short. In the next turn, the connection that has used the least time goes
first. So a client with few requests is answered quickly while others send many.

Unsent bytes are limited too. A client that does not read its answers is not served until it does.
If all clients together have too many unsent bytes, the connection with the most is reset.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from heapq import heappop, heappush
from typing import Protocol

TURN_SECONDS = 0.001  # work for clients in one turn of the loop
SHARE_SECONDS = 0.0005  # work for one client while others wait
SAVED_SECONDS = 0.1  # unused time that gives a client priority over others
NOTED_BYTES = 64 * 1024  # smaller backlogs do not count


class Served(Protocol):
    """A connection that takes turns."""

    used: float  # seconds of work, comparable with those of other connections

    @property
    def ready(self) -> bool:
        """Return whether frames wait that may be handled now."""

    @property
    def backlog(self) -> int: ...

    def work(self, until: float) -> None:
        """Handle waiting frames, at least one, until the given time."""

    def fail(self, incident: str, reason: str) -> None: ...


class Turns:
    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: list[tuple[float, int, Served]] = []
        self._queued: set[Served] = set()
        self._number = 0  # the order of arrival decides between equals
        self._until = 0.0  # the end of this turn
        self._in_turn = False
        self._floor = 0.0  # the most that a connection had used when its turn came

    def begin(self) -> float:
        """Return until when a connection may work now; 0 if it has to queue."""
        if self._queue:
            return 0.0
        now = self._loop.time()
        if not self._in_turn:
            self._start(now)
        return self._until if now < self._until else 0.0

    def join(self, connection: Served) -> None:
        """Begin to count the work for a connection; a new one has no advantage over others."""
        connection.used = self._floor

    def count(self, connection: Served, seconds: float) -> None:
        connection.used = self._owed(connection) + seconds

    def _owed(self, connection: Served) -> float:
        """Return the used time; unused time of the past counts only up to a limit."""
        return max(connection.used, self._floor - SAVED_SECONDS)

    def queue(self, connection: Served) -> None:
        if connection in self._queued or not connection.ready:
            return
        self._queued.add(connection)
        self._number += 1
        heappush(self._queue, (self._owed(connection), self._number, connection))
        if not self._in_turn:
            self._start(self._loop.time())

    def _start(self, now: float) -> None:
        self._in_turn, self._until = True, now + TURN_SECONDS
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        """Begin the next turn of the loop with the connections that wait."""
        self._in_turn = False
        if not self._queue:
            return
        now = self._loop.time()
        self._start(now)
        while self._queue and now < self._until:
            used, _, connection = heappop(self._queue)
            self._floor = max(self._floor, used)
            self._queued.discard(connection)
            if connection.ready:
                connection.work(min(now + SHARE_SECONDS, self._until))
            after = self._loop.time()
            self.count(connection, after - now)
            now = after
            self.queue(connection)


class Backlogs:
    """The unsent bytes of clients, all together."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._noted: dict[Served, int] = {}
        self.total = 0  # an upper bound: connections send in the meantime

    def note(self, connection: Served, size: int) -> None:
        before = self._noted.pop(connection, 0)
        if size > NOTED_BYTES:
            self._noted[connection] = size
        self.total += self._noted.get(connection, 0) - before
        if self.total > self._bytes_max:
            self._reset_slowest()

    def _reset_slowest(self) -> None:
        """Reset the connection with the most unsent bytes if the current total is too high."""
        self._noted = {each: size for each in self._noted if (size := each.backlog) > NOTED_BYTES}
        self.total = sum(self._noted.values())
        if self.total > self._bytes_max:
            largest = max(self._noted, key=self._noted.__getitem__)
            self.total -= self._noted.pop(largest)
            reason = f"{largest.backlog} bytes unsent, the most of all clients; link reset"
            largest.fail("slow", reason)
