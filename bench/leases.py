"""Measure the memory that a node needs for the messages of a shared subscription.

python bench/leases.py [--json] [--in-flight N] [--waiting N]

Each row is measured in a process of its own: the growth of its resident memory while the state
machine applies the commands. A million messages in flight must need less than 300 MB. Messages that
wait for their first delivery must need nothing beyond the index of the topic.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from oncecast.broker.machine import Machine
from oncecast.broker.queue import Queue
from oncecast.wire.commands import (
    FromNew,
    Lease,
    OpenProducer,
    Put,
    Settles,
    Subscribe,
    SubscribeShared,
)
from oncecast.wire.results import GrantMade, Leased, Opened
from oncecast.wire.sharing import IN_FLIGHT_MAX, WINDOW_MAX, Settle, Shared

BATCH = 100  # number of messages per put
SMALL = 16  # number of messages per grant, as after a prefetch of 16
IN_FLIGHT_MB_MAX = 300  # target for a million messages in flight
WAITING_MB_MAX = 5  # target for all waiting messages, beyond the index
TIME = 1_700_000_000_000_000
HOURS = 3600 * 1_000_000
DELAY = 1_000_000
TICK = 1000  # microseconds between two commands
SETTINGS = Shared(lease_us=HOURS, in_flight_max=IN_FLIGHT_MAX, backoff_max_us=HOURS)
BY_KEY = Shared(lease_us=HOURS, in_flight_max=IN_FLIGHT_MAX, by_key=True)


class Run:
    """A state machine with a topic of many messages. Each command has a time of its own."""

    def __init__(self) -> None:
        self.machine, self._slot, self._sequence = Machine(), 0, 0
        opened = self.do(OpenProducer("t", "p", "i", 0))
        assert isinstance(opened, Opened)
        self._epoch = opened.epoch

    @property
    def now(self) -> int:
        return TIME + TICK * self._slot

    @property
    def queue(self) -> Queue:
        queue = self.machine.registry.topics["t"].subscriptions["s"].queue
        assert queue is not None
        return queue

    def do(self, command: Any) -> Any:
        self._slot += 1
        return self.machine.apply(self._slot, command)

    def subscribe(self, settings: Shared | None) -> None:
        if settings is None:
            self.do(Subscribe("t", "s", FromNew(), self.now))
        else:
            self.do(SubscribeShared("t", "s", FromNew(), self.now, settings))

    def put(self, count: int) -> None:
        for _ in range(count // BATCH):
            put = Put("t", "p", self._epoch, self._sequence, BATCH, 100 * BATCH, self.now, b"")
            self._sequence += BATCH
            self.do(put)

    def lease(self, worker: int, window: int, keys: tuple[int, ...] = ()) -> GrantMade:
        wants = ((f"worker-{worker}", window),)
        leased = self.do(Lease("t", "s", self.now, wants, (), self.queue.next, keys))
        assert isinstance(leased, Leased)
        (grant,) = leased.grants
        return grant

    def lease_all(self, count: int, size: int) -> None:
        """Lease messages to workers with 10,000 each, under tokens of `size` messages."""
        for worker in range(count // WINDOW_MAX):
            for window in range(size, WINDOW_MAX + 1, size):
                self.lease(worker, window)

    def settle(self, grant: GrantMade, number: int, **verbs: Any) -> None:
        settle = Settle("t", "s", grant.worker, number, **verbs)
        self.do(Settles((settle,), self.now))

    def return_all(self, count: int, delay: int) -> None:
        """Deliver messages, and give them back."""
        for worker in range(count // WINDOW_MAX):
            grant = self.lease(worker, WINDOW_MAX)
            runs = [(grant.token, first, length, delay, "") for first, length in grant.runs]
            self.settle(grant, 1, release=tuple(runs))


def large_grants(run: Run, count: int) -> None:
    run.lease_all(count, WINDOW_MAX)


def small_grants(run: Run, count: int) -> None:
    run.lease_all(count, SMALL)


def single_grants(run: Run, count: int) -> None:
    run.lease_all(count, 1)


def redelivered(run: Run, count: int) -> None:
    run.return_all(count, DELAY)
    for _ in range(DELAY // TICK):
        run.do(Settles((), run.now))
    run.lease_all(count, SMALL)


def retried(run: Run, count: int) -> None:
    run.return_all(count, HOURS)


def by_key(run: Run, count: int) -> None:
    for worker in range(count // WINDOW_MAX):
        first = worker * WINDOW_MAX
        keys = tuple([(each + 1) << 40 for each in range(first, first + WINDOW_MAX)])
        run.lease(worker, WINDOW_MAX, keys)


def renewed(run: Run, count: int) -> None:
    for worker in range(count // WINDOW_MAX):
        grant = run.lease(worker, WINDOW_MAX)
        runs = tuple([(grant.token, first, length) for first, length in grant.runs])
        for number in range(1, 11):
            run.settle(grant, number, renew=runs)


SHAPES: dict[str, Callable[[Run, int], None]] = {
    "in flight, 10,000 messages per token": large_grants,
    f"in flight, {SMALL} messages per token": small_grants,
    "in flight, one message per token": single_grants,
    f"in flight again after a nack, {SMALL} per token": redelivered,
    "in flight, each with a key of its own": by_key,
    "in flight, with ten renewals": renewed,
    "waiting for a retry": retried,
}


def resident() -> float:
    """Return the resident memory of this process in MB."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def open_messages(shape: str, count: int) -> float:
    """Return the growth in MB while workers take the messages."""
    run, fill = Run(), SHAPES[shape]
    run.subscribe(BY_KEY if fill is by_key else SETTINGS)
    run.put(count)
    before = resident()
    fill(run, count)
    assert len(run.queue.open) == count
    return resident() - before


def backlog(count: int, *, shared: bool) -> float:
    """Return the growth in MB while messages are put into a topic with a subscription."""
    run = Run()
    run.subscribe(SETTINGS if shared else None)
    before = resident()
    run.put(count)
    return resident() - before


def apart(measure: Callable[..., float], *arguments: Any, **options: Any) -> float:
    """Measure in a new process."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, arguments, options)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    about = "number of messages in flight, a multiple of 10,000 (default: 1,000,000)"
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT_MAX, help=about)
    about = "number of messages that wait for their first delivery (default: 10,000,000)"
    parser.add_argument("--waiting", type=int, default=10_000_000, help=about)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    if not 0 < options.in_flight <= IN_FLIGHT_MAX or options.in_flight % WINDOW_MAX:
        parser.error(f"--in-flight is {options.in_flight}; use a multiple of {WINDOW_MAX:,}")
    found = {}
    for shape in SHAPES:
        found[shape] = apart(open_messages, shape, options.in_flight)
        show(options, found, shape, options.in_flight)
    index = apart(backlog, options.waiting, shared=False)
    name = "waiting for a first delivery, beyond the index"
    found[name] = apart(backlog, options.waiting, shared=True) - index
    show(options, found, name, options.waiting)
    if options.json:
        print(json.dumps({each: round(mb, 1) for each, mb in found.items()}))
    over = [each for each, mb in found.items() if mb > limit(each, name)]
    for each in over:
        print(f"above the target of {limit(each, name)} MB: {each}", file=sys.stderr)
    return 1 if over else 0


def limit(name: str, backlog_name: str) -> int:
    return WAITING_MB_MAX if name == backlog_name else IN_FLIGHT_MB_MAX


def show(options: argparse.Namespace, found: dict[str, float], name: str, count: int) -> None:
    if not options.json:
        print(f"{count:>11,} messages {name:<48} {found[name]:>7.1f} MB", flush=True)


if __name__ == "__main__":
    sys.exit(main())
