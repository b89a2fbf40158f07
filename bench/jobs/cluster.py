"""The nodes and the clients of `bench.jobs`, which are killed and started again."""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bench.jobs.clients import ready_file, trace_file
from bench.peers.peer import Failed, answers, free_port
from oncecast import blocking
from oncecast.errors import OncecastError
from oncecast.wire.frames import GroupView

NODES = 3
TIMERS = ("--heartbeat", "0.1", "--suspicion", "0.5", "--replace-after", "3600")
SNAPSHOT_BYTES = 8 << 20  # so small that snapshots are taken during the run
DOWN = 1.0  # seconds until a killed node is started again
PATIENCE = 120.0
HERE = Path(__file__).resolve().parent.parent.parent
T = TypeVar("T")


def until(what: str, reached: Callable[[], T | None], seconds: float = PATIENCE) -> T:
    give_up = time.monotonic() + seconds
    while not (found := reached()):
        if time.monotonic() > give_up:
            raise Failed(f"still waiting for {what} after {seconds:g} s")
        time.sleep(0.1)
    return found


class Process:
    """A program that is killed and started again."""

    def __init__(self, name: str, log: Path) -> None:
        self.name, self._log = name, log
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def run(self, *words: str) -> None:
        self.starts += 1
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", *words]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=HERE)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> int:
        """Terminate the process, and return its exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE)


class Node(Process):
    def __init__(self, directory: Path, number: int) -> None:
        super().__init__(f"node{number}", directory / f"node{number}.log")
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._data = directory / f"data{number}"

    def start(self, others: list[str]) -> None:
        words = ["oncecast", "serve", "--listen", self.address, "--data", str(self._data)]
        words += [*TIMERS, "--snapshot-bytes", str(SNAPSHOT_BYTES)]
        self.run(*words, *(["--join", ",".join(others)] if others else []))


class Client(Process):
    def __init__(self, options: argparse.Namespace, name: str, server: str) -> None:
        super().__init__(name, options.directory / f"{name}.log")
        self._options, self._server = options, server

    def start(self, role: str) -> None:
        options = self._options
        words = [role, "--server", self._server, "--directory", str(options.directory)]
        words += ["--name", self.name, "--number", str(self.starts)]
        words += ["--jobs", str(options.jobs), "--seconds", str(options.seconds)]
        self.run("bench.jobs.clients", *words)

    @property
    def trace(self) -> Path:
        """Return the trace of the last start."""
        return trace_file(self._options.directory, self.name, self.starts - 1)

    @property
    def ready(self) -> bool:
        """Return whether the worker can be drained."""
        return ready_file(self._options.directory, self.name, self.starts - 1).exists()


class Cluster:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.nodes = [Node(options.directory, number) for number in range(NODES)]
        self.server = ",".join(each.address for each in self.nodes)
        self.producer = Client(options, "producer", self.server)
        self.workers = [
            Client(options, f"worker{number}", self.server) for number in range(options.workers)
        ]

    def start(self) -> None:
        for number, node in enumerate(self.nodes):
            node.start([each.address for each in self.nodes[:number]])
            until(f"an answer from {node.name}", self.view)
        until("three members", self.whole)

    def view(self) -> GroupView | None:
        try:
            with blocking.connect(self.server, connect_timeout=2.0, timeout=2.0) as client:
                return client.group()
        except OncecastError:
            return None

    def whole(self) -> bool:
        """Return whether all nodes run, answer and have a leader."""
        if not all(each.running and answers(each.port) for each in self.nodes):
            return False
        view = self.view()
        return view is not None and view.quorum and len(view.members) == NODES

    def kill(self) -> None:
        for each in (*self.nodes, self.producer, *self.workers):
            each.kill()


class Strikes:
    """Kill a node or a worker every few seconds. `turn` must be called often."""

    def __init__(self, cluster: Cluster, killed: Callable[[Path], None]) -> None:
        self._cluster, self._killed = cluster, killed
        self._rng = random.Random(cluster.options.seed)
        self._next = time.monotonic() + cluster.options.every
        self._down: tuple[Node, float] | None = None  # a killed node, and when to start it
        self.nodes = self.workers = 0  # number of kills

    def turn(self) -> None:
        now = time.monotonic()
        if self._down is not None and now >= self._down[1]:
            self.mend()
        if now < self._next:
            return
        self._next = now + self._cluster.options.every
        # One node at a time is down, so that the group keeps its majority.
        options, node_next = self._cluster.options, self.nodes <= self.workers
        free = node_next and self.nodes < options.node_kills and self._down is None
        if free and self._cluster.whole():
            self._kill_node(self._rng.choice(self._cluster.nodes))
        elif self.workers < options.worker_kills:
            self._kill_worker(self._rng.choice(self._cluster.workers))

    def _kill_node(self, node: Node) -> None:
        node.kill()
        self._down = node, time.monotonic() + DOWN
        self.nodes += 1

    def _kill_worker(self, worker: Client) -> None:
        worker.kill()
        self._killed(worker.trace)
        worker.start("worker")
        self.workers += 1

    def mend(self) -> None:
        """Start the killed node again."""
        if self._down is not None:
            node, _ = self._down
            self._down = None
            node.start([each.address for each in self._cluster.nodes if each is not node])
