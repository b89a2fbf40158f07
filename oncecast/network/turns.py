"""Fair turns: clients share the event loop, so that no client blocks it for long.

A client may send thousands of frames in one write. Per loop iteration, the frames of all clients
together get at most `TURN_SECONDS`. The other frames wait, and their connections stop reading.
Splitting bytes into frames also takes time, so bytes wait unsplit. A disk sync waits for the end of
a turn, so turns are short.

Turns go to accounts, not to connections. All connections of a user, or of a host without a login,
form one account. A light account needs less than `SHARE_SECONDS` in each turn. It is served first
and does not queue. Among the busy accounts, the one that has used the least time is next, and the
same rule applies to connections within an account. A client that sends one request at a time
therefore gets quick answers, even while other accounts overload the node.

Unsent bytes are limited too. A client that does not read its answers is not served until it does.
If all clients together have too many unsent bytes, the connections with the most are reset.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

TURN_SECONDS = 0.001  # seconds of work for busy accounts per turn
LIGHT_SECONDS = 0.0005  # additional seconds for light accounts
SHARE_SECONDS = 0.0005  # seconds for one account while others wait
SAVED_SECONDS = 0.1  # maximum unused seconds that an account can save up
NOTED_BYTES = 64 * 1024  # minimum size of a backlog that is counted


class Counted(Protocol):
    used: float  # seconds of work, comparable only within the same queue


class Served(Protocol):
    """A connection that takes turns."""

    used: float
    account: Account

    @property
    def ready(self) -> bool:
        """Return whether waiting frames may be handled now."""

    @property
    def backlog(self) -> int: ...

    def work(self, until: float) -> None:
        """Handle waiting frames until the given time, but at least one."""

    def fail(self, incident: str, reason: str) -> None: ...


Item = TypeVar("Item", bound=Counted)


class FairQueue(Generic[Item]):
    """Items ordered by the time that they have used, least first."""

    def __init__(self) -> None:
        self.floor = 0.0  # highest `used` among the items served
        self._heap: list[tuple[float, int, Item]] = []
        self._number = 0  # arrival order, which breaks ties

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, item: Item) -> None:
        self._number += 1
        heappush(self._heap, (self._owed(item), self._number, item))

    def next(self) -> Item:
        used, _, item = heappop(self._heap)
        self.floor = max(self.floor, used)
        return item

    def count(self, item: Item, seconds: float) -> None:
        item.used = self._owed(item) + seconds

    def _owed(self, item: Item) -> float:
        """Return the used time. An account can save up unused time only up to a limit."""
        return max(item.used, self.floor - SAVED_SECONDS)


class Account:
    """The connections of one user or host with waiting work."""

    def __init__(self, used: float) -> None:
        self.used = used
        self.waiting: FairQueue[Served] = FairQueue()
        self.queued: set[Served] = set()
        self.listed = False  # whether the account is queued or being served
        self.turn = -1  # the turn in which it was last served
        self.spent = 0.0  # seconds of work in the turn `turn`


class Turns:
    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._accounts: WeakValueDictionary[str, Account] = WeakValueDictionary()
        self._light: deque[Account] = deque()
        self._busy: FairQueue[Account] = FairQueue()
        self._turn = 0
        self._until = 0.0  # when this turn ends for busy accounts
        self._in_turn = False

    def join(self, connection: Served, owner: str) -> None:
        """Start counting a connection's work. A new connection has no advantage over others."""
        account = self._accounts.get(owner)
        if account is None:
            account = self._accounts[owner] = Account(self._busy.floor)
        connection.account, connection.used = account, account.waiting.floor

    def begin(self, connection: Served) -> float:
        """Return the time until which a connection may work now, or 0 if it must queue."""
        account = connection.account
        if account.listed:
            return 0.0
        now = self._loop.time()
        if not self._in_turn:
            self._start(now)
        if not (self._light or self._busy):
            return self._until if now < self._until else 0.0
        until = min(now + SHARE_SECONDS - self._spent(account), self._until + LIGHT_SECONDS)
        return until if now < until else 0.0

    def count(self, connection: Served, seconds: float) -> None:
        account = connection.account
        account.waiting.count(connection, seconds)
        self._busy.count(account, seconds)
        account.spent, account.turn = self._spent(account) + seconds, self._turn

    def _spent(self, account: Account) -> float:
        """Return how many seconds an account has worked in this turn."""
        return account.spent if account.turn == self._turn else 0.0

    def queue(self, connection: Served) -> None:
        if not connection.ready or connection in connection.account.queued:
            return
        account = connection.account
        account.queued.add(connection)
        account.waiting.add(connection)
        if not account.listed:
            account.listed = True
            if self._spent(account) < SHARE_SECONDS:
                self._light.append(account)
            else:
                self._busy.add(account)
        if not self._in_turn:
            self._start(self._loop.time())

    def _start(self, now: float) -> None:
        self._in_turn, self._until = True, now + TURN_SECONDS
        self._turn += 1
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        """Start the next turn and serve the waiting accounts."""
        self._in_turn = False
        if not (self._light or self._busy):
            return
        now = self._loop.time()
        self._start(now)
        light_until = now + LIGHT_SECONDS
        while self._light and now < light_until:
            now = self._serve(self._light.popleft(), now)
        self._until = now + TURN_SECONDS
        while self._busy and now < self._until:
            now = self._serve(self._busy.next(), now)

    def _serve(self, account: Account, now: float) -> float:
        """Let an account's connections work for one share. Return the time afterwards."""
        until = now + SHARE_SECONDS
        while account.queued and now < until:
            connection = account.waiting.next()
            account.queued.discard(connection)
            if connection.ready:
                connection.work(until)
            after = self._loop.time()
            self.count(connection, after - now)
            now = after
            self.queue(connection)
        account.listed = bool(account.queued)
        if account.listed:
            self._busy.add(account)
        return now


class Backlogs:
    """The unsent bytes of all clients."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = self._recount_at = bytes_max
        self._noted: dict[Served, int] = {}
        self.total = 0  # an upper bound, because connections send meanwhile

    def note(self, connection: Served, size: int) -> None:
        before = self._noted.pop(connection, 0)
        if size > NOTED_BYTES:
            self._noted[connection] = size
        self.total += self._noted.get(connection, 0) - before
        if self.total > self._recount_at:
            self._reset_slowest()

    def _reset_slowest(self) -> None:
        """Reset the connections with the most unsent bytes until the total is low enough."""
        self._noted = {each: size for each in self._noted if (size := each.backlog) > NOTED_BYTES}
        self.total = sum(self._noted.values())
        for largest in sorted(self._noted, key=self._noted.__getitem__, reverse=True):
            if self.total <= self._bytes_max:
                break
            self.total -= self._noted.pop(largest)
            reason = f"{largest.backlog} bytes unsent, the most of all clients; link reset"
            largest.fail("slow", reason)
        # Counting takes time, so a few more bytes must not trigger another count.
        self._recount_at = max(self._bytes_max, self.total + self._bytes_max // 16)
