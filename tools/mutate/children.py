"""Run work in forked processes, so that a mutant cannot crash, hang or exhaust this process."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Tell = Callable[..., None]  # sends keyword arguments to the parent
MEMORY = 2 << 30  # bytes of memory that a child may use in addition to the parent's


@dataclass
class Outcome:
    """The last value that a child reported for each keyword, and how the child ended."""

    said: dict[str, Any] = field(default_factory=dict)
    signal: int = 0
    late: bool = False  # whether the child was killed because it did not end in time

    @property
    def timed_out(self) -> bool:
        return self.late or self.signal == signal.SIGPROF


class Child:
    """A forked process that runs `work` and sends its results to the parent."""

    def __init__(self, work: Callable[[Tell], None], wall: float) -> None:
        self.reader, writer = os.pipe()
        self.outcome = Outcome()
        self.ended = False
        self._deadline = time.monotonic() + wall
        self._buffer = b""
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.reader)
            _run(work, writer)
        os.close(writer)

    def poll(self) -> None:
        """Read the child's output, and detect when it has ended."""
        data = os.read(self.reader, 1 << 16)
        if data:
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self.outcome.said.update(json.loads(line))
        else:
            self._reap()

    def check_time(self) -> None:
        if not self.ended and time.monotonic() > self._deadline:
            self.outcome.late = True
            self.end()

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._reap()

    def _reap(self) -> None:
        os.close(self.reader)
        _, status = os.waitpid(self.pid, 0)
        self.outcome.signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        self.ended = True


def run(children: Iterator[Child], jobs: int) -> Iterator[Child]:
    """Run up to `jobs` children at a time and yield each when it has ended."""
    running: list[Child] = []
    try:
        more = True
        while running or more:
            while more and len(running) < jobs:
                child = next(children, None)
                if child is None:
                    more = False
                else:
                    running.append(child)
            ready, _, _ = select.select([each.reader for each in running], [], [], 1.0)
            for each in running:
                if each.reader in ready:
                    each.poll()
                each.check_time()
            done = [each for each in running if each.ended]
            running = [each for each in running if not each.ended]
            yield from done
    finally:
        for each in running:
            each.end()


def run_one(work: Callable[[Tell], None], wall: float) -> Outcome:
    (child,) = run(iter([Child(work, wall)]), 1)
    return child.outcome


def limit_processor_time(seconds: float) -> None:
    """End this process when it has used `seconds` more of processor time."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _run(work: Callable[[Tell], None], writer: int) -> None:
    status = 1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(nothing, standard)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + MEMORY, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        def tell(**said: Any) -> None:
            os.write(writer, json.dumps(said).encode() + b"\n")

        try:
            work(tell)
            status = 0
        except Exception:  # noqa: BLE001  # the parent decides what it means
            tell(error=traceback.format_exc())
    finally:
        os._exit(status)  # exits without cleaning up the parent's resources


def _data_bytes() -> int:
    """Return the size of this process's data, as the kernel counts it for RLIMIT_DATA."""
    with open("/proc/self/status") as status:  # noqa: PTH123
        sizes = dict(line.split(":", 1) for line in status)
    return int(sizes["VmData"].split()[0]) << 10
