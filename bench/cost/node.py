"""Run a node as a process and measure its memory, CPU and disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.peers.ours import Oncecast
from bench.peers.peer import Failed

VALUE = bytes(100)
ROUNDS = 5


@dataclass(frozen=True)
class Figure:
    what: str
    value: float
    unit: str
    target: str = ""
    ok: bool | None = None


Found = Iterator[Figure]


def most(what: str, value: float, unit: str, limit: float) -> Figure:
    return Figure(what, value, unit, f"<= {limit:g}", value <= limit)


class Node(Oncecast):
    """A node as a process, with its memory, CPU and disk usage."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.start(directory)

    @property
    def pid(self) -> int:
        return self.servers[-1].process.pid

    def memory_mb(self, key: str = "VmRSS") -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) / 1000
        raise Failed(f"process {self.pid} does not report its {key}")

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def disk_mb(self) -> float:
        files = (self.directory / "data").iterdir()
        return sum(file.stat().st_blocks * 512 for file in files) / 1e6


@contextmanager
def node(root: Path, name: str) -> Iterator[Node]:
    each = Node(root / name)
    try:
        yield each
    finally:
        each.stop()
        shutil.rmtree(each.directory)
