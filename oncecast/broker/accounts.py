"""Limit each account's calls and bytes in flight.

All clients with the same principal share an account. A client without a login has its own account.
A call counts from its arrival until its answer. If an account has no bytes in flight, its next
batch is accepted regardless of size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from oncecast.kernel.protocol import NodeId
from oncecast.wire.errors import Overloaded


@dataclass(frozen=True, kw_only=True)
class Budget:
    calls: int = 10_000  # maximum calls in flight per account
    bytes: int = 64 << 20  # maximum batch bytes in flight per account
    rate: float = inf  # maximum batch bytes per second per account
    total_bytes: int = 512 << 20  # maximum batch bytes in flight across all accounts


class Account:
    """One account's calls and bytes in flight, and its remaining put quota for this second."""

    __slots__ = ("bytes", "calls", "clients", "left", "seen")

    def __init__(self, rate: float, now: float) -> None:
        self.calls = self.bytes = self.clients = 0
        self.left, self.seen = rate, now


class Accounts:
    def __init__(self, budget: Budget, principal_of: Callable[[NodeId], str]) -> None:
        self.budget = budget
        self._principal_of = principal_of
        self._accounts: dict[str, Account] = {}
        self.bytes = 0  # bytes in flight across all accounts

    def join(self, client: NodeId, now: float) -> tuple[str, Account]:
        """Add a client to its account. Return the account's name, for `leave`, and the account."""
        principal = self._principal_of(client)
        name = f"@{principal}" if principal else client  # client names never start with @
        account = self._accounts.get(name)
        if account is None:
            account = self._accounts[name] = Account(self.budget.rate, now)
        account.clients += 1
        return name, account

    def leave(self, name: str, calls: int, size: int) -> None:
        """Remove a disconnected client that had `calls` calls of `size` bytes in flight."""
        account = self._accounts[name]
        self.end(account, calls, size)
        account.clients -= 1
        if not account.clients:
            del self._accounts[name]

    def refusal(self, account: Account, size: int, now: float) -> Overloaded | None:
        """Return the refusal for a call with a batch of `size` bytes, or None if it fits."""
        budget = self.budget
        if account.calls >= budget.calls:
            return Overloaded("calls in flight from one client")
        if not size:
            return None
        if account.bytes and account.bytes + size > budget.bytes:
            return Overloaded("bytes in flight from one client")
        if account.bytes and self.bytes + size > budget.total_bytes:
            return Overloaded("bytes in flight from all clients")
        if budget.rate != inf:
            account.left = min(budget.rate, account.left + (now - account.seen) * budget.rate)
            account.seen = now
            if account.left <= 0:
                return Overloaded("bytes per second from one client")
        return None

    def begin(self, account: Account, size: int) -> None:
        account.calls += 1
        account.bytes += size
        account.left -= size
        self.bytes += size

    def end(self, account: Account, calls: int, size: int) -> None:
        account.calls -= calls
        account.bytes -= size
        self.bytes -= size
