"""Define the measures of a reliable stream between two processes."""

from __future__ import annotations

import json
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import ClassVar

from bench.peers.peer import Failed, System, free_port
from bench.streams.side import WARM_UP

PAUSE = 0.001  # seconds between samples when latency is measured
WITHIN = 120.0


class StreamSystem(System):
    module: ClassVar[str]  # name of a module in this package with `read` and `write`

    def start(self, directory: Path) -> None:
        """Prepare a measurement, which starts its own processes."""

    @abstractmethod
    def version(self) -> str: ...

    async def flow(self, values: list[bytes]) -> float:
        """Return the seconds from the first call until the last sample arrived."""
        began, ended = self.both(len(values), len(values[0]), 0.0)
        return float(ended) - float(began)

    async def ways(self, values: list[bytes]) -> list[float]:
        """Return the latency of each sample in seconds, with a pause between samples."""
        _, times = self.both(len(values) + WARM_UP, len(values[0]), PAUSE)
        found: list[float] = json.loads(times)
        return found

    def both(self, count: int, size: int, pause: float) -> tuple[str, str]:
        """Run the writer and the reader, and return their output."""
        words = [f"127.0.0.1:{free_port()}", str(count), str(size), str(pause)]
        with self.side("read", words) as reader:
            said(reader)
            with self.side("write", words) as writer:
                return said(writer), said(reader)

    @contextmanager
    def side(self, role: str, words: list[str]) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-m", "bench.streams.side", self.module, role, *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        limit = Timer(WITHIN, process.kill)
        limit.start()
        try:
            yield process
        finally:
            limit.cancel()
            process.kill()
            process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise Failed(f"{process.args!r} failed, or did not finish within {WITHIN:g} s")
    return line


async def flow(system: StreamSystem, values: list[bytes]) -> float:
    return len(values) / await system.flow(values)


async def way(system: StreamSystem, values: list[bytes]) -> list[float]:
    return [seconds * 1e6 for seconds in await system.ways(values)]
