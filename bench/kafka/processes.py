"""Node and front-end processes that can be killed and restarted at the same address."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

START_SECONDS = 30.0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class Killable:
    """A process that serves Kafka clients at `kafka`."""

    def __init__(self, words: list[str], kafka: str, log: Path) -> None:
        self._words, self.kafka, self._log = words, kafka, log
        self.deaths = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._words, stdout=log, stderr=log)
        give_up = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"{self._words[3]} does not start; see {self._log}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        host, _, port = self.kafka.rpartition(":")
        try:
            socket.create_connection((host, int(port)), 0.2).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self.deaths += 1

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @property
    def cpu_seconds(self) -> float:
        """Return the processor time of the process so far."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Cluster:
    """Nodes of one group, which serve Kafka clients, and a front end of its own process."""

    def __init__(self, directory: Path, count: int, *, front: bool = True) -> None:
        self._stack = ExitStack()
        self._directory = directory
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(count)]
        self.nodes = [self._node(number) for number in range(count)]
        self.fronts = [self._front()] if front else []

    def _node(self, number: int) -> Killable:
        at, kafka = self.addresses[number], f"127.0.0.1:{free_port()}"
        data = self._directory / f"n{number}"
        words = ["--data", str(data), "--listen", at, "--kafka", kafka]
        if number:
            words += ["--join", self.addresses[0]]
        words = [sys.executable, "-m", "oncecast", "serve", *words]
        return Killable(words, kafka, data.with_suffix(".log"))

    def _front(self) -> Killable:
        kafka, nodes = f"127.0.0.1:{free_port()}", ",".join(self.addresses)
        words = [sys.executable, "-m", "oncecast", "kafka", "--server", nodes, "--listen", kafka]
        return Killable(words, kafka, self._directory / "front.log")

    @property
    def kafka(self) -> str:
        """Return the bootstrap addresses of the nodes."""
        return ",".join(each.kafka for each in self.nodes)

    def __enter__(self) -> Cluster:
        for each in (*self.nodes, *self.fronts):
            self._stack.callback(each.stop)
        try:
            for each in (*self.nodes, *self.fronts):
                each.start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
