"""Run workers in processes of their own, and measure how long they take for all jobs.

python -m bench.workers.crew MODULE CLASS ADDRESS NAME BATCH NUMBER FILE

A worker connects, says that it is ready, and waits for a line of input. It counts the jobs whose
acknowledgement is stored in its place of a shared file. So the measuring process sees the last one
within a millisecond, without a message from any worker.
"""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from mmap import mmap
from pathlib import Path
from struct import Struct
from tempfile import NamedTemporaryFile
from time import monotonic, perf_counter

from bench.peers.peer import Failed, Peer
from oncecast.network.network import run

WORKERS = 10
PREFETCH = 16  # jobs that a worker holds if it handles one at a time
LOOK_EVERY = 0.001
WITHIN = 120.0  # maximum seconds without any progress
HERE = Path(__file__).resolve().parent.parent.parent
COUNT = Struct("<q")

Go = Callable[[], Awaitable[None]]  # says that the worker is ready, and waits for the start


class Tally:
    """The stored acknowledgements of each worker, in a file that all processes share."""

    def __init__(self, path: Path, workers: int) -> None:
        self.workers = workers
        with path.open("r+b") as file:
            file.truncate(max(1, workers) * COUNT.size)
            self._counts = mmap(file.fileno(), 0)

    def add(self, worker: int, jobs: int) -> None:
        at = worker * COUNT.size
        COUNT.pack_into(self._counts, at, COUNT.unpack_from(self._counts, at)[0] + jobs)

    @property
    def total(self) -> int:
        return sum(count for (count,) in COUNT.iter_unpack(self._counts[:]))


class Workshop(Peer):
    """A system with a queue that many workers share."""

    @abstractmethod
    async def fill(self, name: str, values: list[bytes]) -> None:
        """Create a queue, and put these jobs into it."""

    @abstractmethod
    async def clear(self, name: str) -> None:
        """Delete the queue."""

    @abstractmethod
    async def work(self, name: str, batch: int, number: int, go: Go, tally: Tally) -> None:
        """Handle jobs until the process ends, `batch` at a time. Count stored acknowledgements."""

    async def jobs(self, values: list[bytes], batch: int, workers: int = WORKERS) -> float:
        """Return the seconds that the workers take for these jobs."""
        name = self.new_name()
        await self.fill(name, values)
        with (
            NamedTemporaryFile() as file,
            started(self, name, batch, workers, file.name) as processes,
        ):
            tally = Tally(Path(file.name), workers)
            for each in processes:
                await ready(each)
            began = perf_counter()
            for each in processes:
                assert each.stdin is not None
                each.stdin.write("go\n")
                each.stdin.flush()
            await finished(tally, len(values), processes)
            took = perf_counter() - began
        await self.clear(name)
        return took


@contextmanager
def started(
    system: Workshop, name: str, batch: int, workers: int, file: str
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start the workers, and kill them at the end."""
    kind = type(system)
    program = [sys.executable, "-m", "bench.workers.crew", kind.__module__, kind.__qualname__]
    words = [*program, system.address, name, str(batch)]
    pipe = subprocess.PIPE
    processes: list[subprocess.Popen[str]] = []
    try:
        for number in range(workers):
            command = [*words, str(number), str(workers), file]
            made = subprocess.Popen(command, cwd=HERE, stdin=pipe, stdout=pipe, text=True)
            processes.append(made)
        yield processes
    finally:
        for each in processes:
            each.kill()
        for each in processes:
            each.communicate()


async def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), WITHIN)
    except TimeoutError:
        process.kill()
        line = ""
    if not line:
        raise Failed(f"{process.args!r} did not start; see its standard error")


async def finished(tally: Tally, jobs: int, processes: list[subprocess.Popen[str]]) -> None:
    """Wait until the workers have acknowledged this many jobs."""
    until, before = monotonic() + WITHIN, 0
    while (total := tally.total) < jobs:
        if total > before:
            until, before = monotonic() + WITHIN, total
        ended = [each.args for each in processes if each.poll() is not None]
        if ended or monotonic() > until:
            fault = f"{ended[0]!r} ended" if ended else f"no job was done for {WITHIN:g} s"
            raise Failed(f"{fault}, after {total:,} of {jobs:,} jobs")
        await asyncio.sleep(LOOK_EVERY)
    if total > jobs:
        raise Failed(f"the workers acknowledged {total:,} jobs, expected {jobs:,}")


async def go() -> None:
    print("ready", flush=True)
    if not await asyncio.to_thread(sys.stdin.readline):
        sys.exit(1)


def main(module: str, kind: str, address: str, name: str, *rest: str) -> None:
    batch, number, workers, file = rest
    system: Workshop = getattr(importlib.import_module(module), kind)()
    system.address = address
    tally = Tally(Path(file), int(workers))
    run(system.work(name, int(batch), int(number), go, tally))


if __name__ == "__main__":
    main(*sys.argv[1:])
