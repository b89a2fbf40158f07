"""Run the processes under test: three nodes and their clients, which are killed and restarted."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.torture.hosts import Hosts

PORT = 7400
NODES = ("node1", "node2", "node3")
FORGETFUL = "node3"  # the disk of this node loses unsynced bytes when the node is killed
CLIENTS = "clients"  # the host on which all clients run
TIMERS = ["--heartbeat", "0.1", "--suspicion", "0.5", "--replace-after", "3600"]
SNAPSHOT_BYTES = 8 << 20  # so small that snapshots are taken during faults


class Process:
    """A program that is started, killed, paused and continued by process id."""

    def __init__(self, name: str, command: Callable[[int], list[str]], log: Path) -> None:
        self.name, self._command, self.log = name, command, log
        self.starts = 0
        self.stopped = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        self.starts += 1
        self.stopped = False
        with self.log.open("ab") as log:
            command = self._command(self.starts)
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        self._signal(signal.SIGSTOP)
        self.stopped = True

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)
        self.stopped = False

    def end(self, seconds: float) -> int:
        """Terminate the process, and return its exit status. Kill it after `seconds`."""
        self._signal(signal.SIGTERM)
        return self.wait(seconds)

    def wait(self, seconds: float) -> int:
        """Wait until the process exits, and return its status. Kill it after `seconds`."""
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)


class Cluster:
    def __init__(self, hosts: Hosts, directory: Path) -> None:
        self.hosts, self.directory = hosts, directory
        self._secret = directory / "cluster-secret"
        self._secret.touch(0o600)
        self._secret.write_text(secrets.token_hex())
        self.addresses = {name: f"{hosts.address(name)}:{PORT}" for name in NODES}
        self.nodes = {
            name: Process(name, lambda start, name=name: self._serve(name, start), self._log(name))  # type: ignore[misc]
            for name in NODES
        }
        self.clients: dict[str, Process] = {}

    @property
    def server(self) -> str:
        return ",".join(self.addresses.values())

    def client(self, name: str, words: list[str]) -> Process:
        def command(number: int) -> list[str]:
            client = [sys.executable, "-m", "bench.torture.client", "--server", self.server]
            client += ["--name", name, "--number", str(number), "--directory", str(self.directory)]
            return self.hosts.on(CLIENTS, [*client, *words])

        return Process(name, command, self._log(name))

    def status(self) -> dict[str, Any] | None:
        """Return the output of `oncecast cluster status`, or None if no node answers in time."""
        command = [sys.executable, "-m", "oncecast", "cluster", "status", "--json"]
        command += ["--server", self.server, "--timeout", "1"]
        found = subprocess.run(
            self.hosts.on(CLIENTS, command), capture_output=True, check=False, timeout=30
        )
        return json.loads(found.stdout) if found.returncode == 0 else None

    def kill(self) -> None:
        for process in (*self.nodes.values(), *self.clients.values()):
            process.kill()

    def _serve(self, name: str, number: int) -> list[str]:
        kind = ["bench.torture.node"] if name == FORGETFUL else ["oncecast", "serve"]
        others = [address for other, address in self.addresses.items() if other != name]
        founds = name == NODES[0] and number == 1
        words = ["--listen", self.addresses[name], "--data", str(self.directory / name)]
        words += ["--insecure", "--cluster-secret-file", str(self._secret)]
        words += [*TIMERS, "--snapshot-bytes", str(SNAPSHOT_BYTES)]
        words += [] if founds else ["--join", ",".join(others)]
        return self.hosts.on(name, [sys.executable, "-m", *kind, *words])

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"
