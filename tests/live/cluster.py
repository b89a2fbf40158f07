"""Start, control, stop and inspect broadcast nodes as processes on loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from tests.network.talk import port_of, reserve

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 30.0  # seconds to wait for a line


class Child:
    """A node that can be restarted. Its port, directory and log stay the same."""

    def __init__(self, reserved: socket.socket, directory: Path, *flags: str) -> None:
        self._reserved, self.directory, self.flags = reserved, directory, flags
        self.id = f"127.0.0.1:{port_of(reserved)}"
        self.port = port_of(reserved)
        self.log = directory.with_suffix(".log")
        self.process: subprocess.Popen[str] | None = None
        self._lines: Queue[str] = Queue()

    def start(self, peers: list[str]) -> int:
        """Start the process. Return the number of messages on its disk."""
        command = [sys.executable, "-m", "tests.live.broadcaster", *self.flags]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [*command, self.id, str(self.directory), *peers],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._lines = Queue()
        threading.Thread(target=self._listen, args=(self.process, self._lines), daemon=True).start()
        return int(self.hear("ready"))

    @staticmethod
    def _listen(process: subprocess.Popen[str], lines: Queue[str]) -> None:
        assert process.stdout is not None
        with process.stdout as stdout:
            for line in stdout:
                lines.put(line.strip())
        lines.put("end")

    def tell(self, *words: object) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        print(*words, file=self.process.stdin, flush=True)

    def hear(self, *words: object) -> str:
        """Wait for a line that starts with these words. Return the rest of it."""
        begin = " ".join(map(str, words))
        while True:
            try:
                line = self._lines.get(timeout=PATIENCE)
            except Empty:
                raise AssertionError(
                    f"{self.id} did not print {begin!r}: {self.log_text()}"
                ) from None
            assert line != "end", f"{self.id} ended without {begin!r}: {self.log_text()}"
            if line.startswith(begin):
                return line.removeprefix(begin).strip()

    def status(self) -> dict[str, Any]:
        self.tell("status")
        status: dict[str, Any] = json.loads(self.hear("status"))
        return status

    def log_text(self) -> str:
        return self.log.read_text()

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: int) -> int:
        """Send the signal and wait. Return the exit code."""
        self.signal(number)
        return self.wait()

    def wait(self) -> int:
        assert self.process is not None
        code = self.process.wait(PATIENCE)
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process = None
        return code

    def memory_bytes(self) -> int:
        """Return the resident memory."""
        assert self.process is not None
        listing = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(self.process.pid)],
            capture_output=True,
            text=True,
            check=True,
        )
        return int(listing.stdout) * 1024

    def kill_if_running(self) -> None:
        if self.process is not None:
            self.end(signal.SIGKILL)
        self._reserved.close()


@contextmanager
def children(directory: Path, count: int, *flags: str) -> Iterator[list[Child]]:
    """Yield nodes that are not started yet. Kill them at the end."""
    made = [Child(reserve(), directory / f"node-{n}", *flags) for n in range(count)]
    try:
        yield made
    finally:
        for child in made:
            child.kill_if_running()


def start_all(cluster: list[Child]) -> None:
    for child in cluster:
        child.start([peer.id for peer in cluster])
    for child in cluster:
        child.hear("neighbors", len(cluster) - 1)


def all_reach(cluster: list[Child], count: int) -> None:
    for child in cluster:
        child.tell("expect", count)
    for child in cluster:
        child.hear("reached", count)


def open_files(count: int) -> None:
    """Raise the limit of open files to `count`, as far as the system allows."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


assert os.name == "posix"
