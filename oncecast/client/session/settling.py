"""The settlements of one worker. One call is in flight at a time; later settlements wait for it.

The node keeps only the result of a worker's last settlement. So a call is repeated until it is
answered. Only then is the next call sent, with the next number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Generic, TypeVar

from oncecast.client.session.calls import Calls
from oncecast.client.session.local import Outcome
from oncecast.wire.sharing import (
    REASON_BYTES_MAX,
    REASONS_BYTES_MAX,
    SETTLED_MAX,
    Reject,
    Release,
    Run,
    Settle,
    runs_of,
)

Lease = tuple[int, int]  # a token and an offset
REASONS_MAX = (
    REASONS_BYTES_MAX // REASON_BYTES_MAX
)  # releases and rejects with a reason in one call

Detail = TypeVar("Detail")


class Verb(Generic[Detail]):
    """Leases that wait for one kind of settlement, in order."""

    __slots__ = ("_in_flight", "added", "done", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[Lease, Detail] = {}
        self.added = self.done = self._in_flight = 0  # totals

    def add(self, lease: Lease, detail: Detail) -> None:
        self.waiting[lease] = detail
        self.added += 1

    def take(self, most: int) -> dict[Lease, Detail]:
        """Remove and return the first leases for the next call."""
        found = dict(islice(self.waiting.items(), most))
        for lease in found:
            del self.waiting[lease]
        self._in_flight = len(found)
        return found

    def answered(self) -> None:
        self.done += self._in_flight
        self._in_flight = 0


class Settlements:
    """A worker's settlements. `answered` is called with each settlement and its outcome."""

    def __init__(
        self,
        calls: Calls,
        topic: str,
        subscription: str,
        worker: str,
        answered: Callable[[Settle, Outcome], None],
    ) -> None:
        self._calls, self._answered = calls, answered
        self._topic, self._subscription, self._worker = topic, subscription, worker
        self.number = 0  # number of the last settlement call
        self._in_flight: Settle | None = None
        self.accept: Verb[None] = Verb()
        self.release: Verb[tuple[int, str]] = Verb()  # each with a delay and a reason
        self.reject: Verb[str] = Verb()  # reason
        self.unused: Verb[None] = Verb()
        self.renew: Verb[None] = Verb()
        self.leave = False

    @property
    def _verbs(self) -> tuple[Verb[Any], ...]:
        return self.accept, self.release, self.reject, self.unused

    @property
    def added(self) -> tuple[int, ...]:
        """Return a mark that `done_since` accepts: the number of settlements of each kind."""
        return tuple([verb.added for verb in self._verbs])

    @property
    def busy(self) -> bool:
        """Return whether a call is in flight."""
        return self._in_flight is not None

    def done_since(self, mark: tuple[int, ...]) -> bool:
        """Return whether the node has answered all settlements before the mark."""
        return all(verb.done >= count for verb, count in zip(self._verbs, mark, strict=True))

    @property
    def in_flight(self) -> bool:
        return self._in_flight is not None

    def flush(self) -> None:
        """Send the waiting settlements, unless a call is in flight."""
        waiting = self.leave or any(verb.waiting for verb in (*self._verbs, self.renew))
        if self._in_flight is None and waiting:
            self.number += 1
            self._in_flight = settle = self._next()
            self._calls.do(settle, self._done)

    def _next(self) -> Settle:
        left = SETTLED_MAX
        renew = self.renew.take(left)  # first, because the leases may end
        release = self.release.take(min(left - len(renew), REASONS_MAX))
        left -= len(renew) + len(release)
        reject = self.reject.take(min(left, REASONS_MAX - len(release)))
        left -= len(reject)
        accept = self.accept.take(left)
        unused = self.unused.take(left - len(accept))
        leave = self.leave and not any(verb.waiting for verb in self._verbs)
        self.leave = self.leave and not leave
        return Settle(
            self._topic,
            self._subscription,
            self._worker,
            self.number,
            runs(accept),
            tuple(releases(release)),
            tuple(rejects(reject)),
            runs(unused),
            runs(renew),
            leave,
        )

    def _done(self, outcome: Outcome) -> None:
        settle, self._in_flight = self._in_flight, None
        assert settle is not None
        for verb in self._verbs:
            verb.answered()
        self._answered(settle, outcome)


def runs(leases: Iterable[Lease]) -> tuple[Run, ...]:
    return tuple(runs_of(sorted(leases)))


def releases(release: dict[Lease, tuple[int, str]]) -> Iterator[Release]:
    """Yield a run for each delay and reason."""
    groups: dict[tuple[int, str], list[Lease]] = {}
    for lease, how in release.items():
        groups.setdefault(how, []).append(lease)
    for (delay, reason), leases in groups.items():
        for run in runs(leases):
            yield (*run, delay, reason)


def rejects(reject: dict[Lease, str]) -> Iterator[Reject]:
    groups: dict[str, list[Lease]] = {}
    for lease, reason in reject.items():
        groups.setdefault(reason, []).append(lease)
    for reason, leases in groups.items():
        for run in runs(leases):
            yield (*run, reason)


def leases_of(runs: Iterable[Run]) -> Iterator[Lease]:
    """Yield the leases of these runs."""
    for token, first, count in runs:
        for offset in range(first, first + count):
            yield token, offset
