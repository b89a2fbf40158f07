"""Start, kill and inspect replicas in their own processes, with fast timers."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from oncecast import blocking
from oncecast.errors import OncecastError
from oncecast.network.tls import Tls
from oncecast.wire.frames import GroupView
from tests.network.talk import port_of, reserve

PATIENCE = 30.0
FAST = ("--heartbeat", "0.1", "--suspicion", "0.5", "--replace-after", "60")
T = TypeVar("T")


class Replica:
    """A node that can be restarted. Its address and log stay the same."""

    def __init__(self, directory: Path, *flags: str, tls: Tls | None = None) -> None:
        self._reserved, self._tls = reserve(), tls
        self.address = f"127.0.0.1:{port_of(self._reserved)}"
        self.data = directory / str(port_of(self._reserved))
        self.log = self.data.with_suffix(".log")
        self.flags, self.program = flags, "oncecast"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *join: str) -> None:
        words = ("serve", "--listen", self.address, "--data", str(self.data), *FAST, *self.flags)
        words += ("--join", ",".join(join)) if join else ()
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", self.program, *words]
            self.process = subprocess.Popen(command, stderr=log)

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        self.send(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the process and return its exit status."""
        assert self.process is not None
        status = self.process.wait(PATIENCE)
        self.process = None
        return status

    def wipe(self) -> None:
        shutil.rmtree(self.data)

    def has_said(self, pattern: str) -> bool:
        return re.search(pattern, self.log.read_text()) is not None

    def look(self) -> GroupView | None:
        """Return the node's view of its group, or None if it does not answer."""
        if self.process is None:
            return None
        with (
            suppress(OncecastError),
            blocking.connect(
                self.address, tls=self._tls, connect_timeout=2.0, timeout=2.0
            ) as client,
        ):
            return client.group()
        return None

    def close(self) -> None:
        if self.process is not None:
            self.end()
        self._reserved.close()


class Replicas:
    def __init__(self, directory: Path, count: int, *flags: str, tls: Tls | None = None) -> None:
        self.all = [Replica(directory, *flags, tls=tls) for _ in range(count)]

    @property
    def addresses(self) -> list[str]:
        return [each.address for each in self.all]

    @property
    def server(self) -> str:
        return ",".join(self.addresses)

    def named(self, address: str) -> Replica:
        return next(each for each in self.all if each.address == address)

    def start(self) -> None:
        for number, each in enumerate(self.all):
            each.start(*self.addresses[:number])
        self.settled()

    def restart(self, replica: Replica) -> None:
        replica.start(*self.addresses)
        self.settled()

    def settled(self) -> Replica:
        """Wait until all running replicas are members and agree on a leader. Return it."""
        return self.named(until("all replicas agree on a leader", self._leader, self._logs))

    def _leader(self) -> str | None:
        running = [each for each in self.all if each.process is not None]
        views = [view for each in running if (view := each.look()) is not None]
        if len(views) < len(running) or not all(view.quorum for view in views):
            return None
        seats = {tuple(member.node for member in view.members) for view in views}
        leaders = {view.leader for view in views}
        everyone = set(self.addresses) if len(running) == len(self.all) else set[str]()
        if len(leaders) > 1 or len(seats) > 1 or not everyone <= set(*seats):
            return None
        applied = [view.applied for view in views]
        return leaders.pop() if max(applied) - min(applied) < 300 else None

    def backup(self) -> Replica:
        leader = self.settled()
        return next(each for each in self.all if each is not leader)

    def _logs(self) -> str:
        return "\n".join(each.log.read_text()[-2000:] for each in self.all)

    def close(self) -> None:
        for each in self.all:
            each.close()


@contextmanager
def replicas(
    directory: Path, count: int, *flags: str, tls: Tls | None = None
) -> Iterator[Replicas]:
    """Start a group. Kill its processes at the end."""
    made = Replicas(directory, count, *flags, tls=tls)
    try:
        made.start()
        yield made
    finally:
        made.close()


def until(what: str, found: Callable[[], T | None], why: Callable[[], str] = str) -> T:
    """Wait until `found` returns a value, and return it."""
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        result = found()
        if result is not None:
            return result
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {PATIENCE:g} s; {why()}")
