"""Run the processes under test: the nodes of a group, and a standalone Spark cluster."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.peers.peer import Failed, Server, answers, free_port
from bench.torture.cluster import Process
from oncecast import blocking
from oncecast.errors import OncecastError
from oncecast.wire.frames import GroupView

PATIENCE = 600.0  # seconds to wait for any event
EXECUTOR = "CoarseGrainedExecutorBackend"


def wait(what: str, reached: Callable[[], bool], look_every: float = 0.1) -> None:
    end = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > end:
            raise Failed(f"still waiting for {what} after {PATIENCE:g} s")
        time.sleep(look_every)


class Nodes:
    """A node or a group of nodes, which can be killed and restarted at the same addresses."""

    def __init__(self, directory: Path, count: int) -> None:
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(count)]
        self._directory = directory
        self._all = [self._node(each) for each in self.addresses]

    @property
    def address(self) -> str:
        return ",".join(self.addresses)

    def client(self) -> blocking.Client:
        return blocking.connect(self.address, timeout=PATIENCE)

    def start(self) -> None:
        for number, node in enumerate(self._all):
            node.start()
            port = int(self.addresses[number].rpartition(":")[2])
            wait(f"an answer from {node.name}", lambda port=port: answers(port))  # type: ignore[misc]
            wait(f"{number + 1} members", lambda: self.complete(number + 1))  # noqa: B023

    def complete(self, count: int) -> bool:
        view = self._view()
        return view is not None and view.quorum and len(view.members) == count

    def kill(self, *, leader: bool) -> None:
        """Kill the leader or a follower with kill -9, and start it again."""
        found = self._view()
        led = self.addresses.index(found.leader) if found and found.leader else 0
        node = self._all[led if leader else (led + 1) % len(self._all)]
        node.kill()
        node.start()

    def _view(self) -> GroupView | None:
        with (
            suppress(OncecastError),
            blocking.connect(self.address, connect_timeout=2, timeout=2) as client,
        ):
            return client.group()
        return None

    def _node(self, address: str) -> Process:
        port = address.rpartition(":")[2]
        others = ",".join(each for each in self.addresses if each != address)

        def command(start: int) -> list[str]:
            words = ["serve", "--listen", address, "--data", str(self._directory / port)]
            words += ["--replace-after", "3600"]
            founds = address == self.addresses[0] and start == 1
            return [
                *(sys.executable, "-m", "oncecast", *words),
                *(["--join", others] if others and not founds else []),
            ]

        return Process(f"node {port}", command, self._directory / f"node{port}.log")

    def end(self) -> None:
        for node in self._all:
            node.kill()


class Standalone:
    """A Spark master and two workers, each as a process with its own address."""

    WORKERS = ("127.0.0.1", "127.0.0.2")  # Spark starts a second attempt only on another host

    def __init__(self, directory: Path) -> None:
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self._directory = directory
        self._servers: list[Server] = []
        words = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        self._run("master.Master", *words).wait_until(lambda: answers(port))
        for host in self.WORKERS:
            words = ["--host", host, "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            words += ["--work-dir", str(directory / f"work{host}")]
            worker = self._run("worker.Worker", *words, self.url)
            worker.wait_until(lambda worker=worker: registered(worker))  # type: ignore[misc]

    def _run(self, name: str, *words: str) -> Server:
        spark = Path(sys.executable).with_name("spark-class")
        command = [sys.executable, "-m", "oncecast.spark.session", str(spark)]
        log = self._directory / f"spark{len(self._servers)}.log"
        server = Server([*command, f"org.apache.spark.deploy.{name}", *words], log, None)
        self._servers.append(server)
        return server

    @property
    def sessions(self) -> list[int]:
        return [each.process.pid for each in self._servers]

    def end(self) -> None:
        for each in reversed(self._servers):
            each.end()


def registered(worker: Server) -> bool:
    return "Successfully registered with master" in worker.log.read_text(errors="replace")


@contextmanager
def nodes(directory: Path, count: int) -> Iterator[Nodes]:
    """Start a group. Kill its processes at the end."""
    made = Nodes(directory, count)
    try:
        made.start()
        yield made
    finally:
        made.end()


def executors(sessions: list[int]) -> list[int]:
    """Return the executors of the newest application in these sessions of processes."""
    found: dict[str, list[int]] = {}
    for each in (process for session in sessions for process in session_of(session)):
        words = command_of(each)
        if any(EXECUTOR in word for word in words) and "--app-id" in words and "java" in words[0]:
            found.setdefault(words[words.index("--app-id") + 1], []).append(each)
    return found[max(found)] if found else []


def session_of(leader: int) -> list[int]:
    """Return the ids of all running processes in a session, in order."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                fields = (each / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # the process has just exited
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append(int(each.name))
    return sorted(found)


def command_of(process: int) -> list[str]:
    try:
        text = (Path("/proc") / str(process) / "cmdline").read_bytes()
    except OSError:
        return [""]
    return text.decode(errors="replace").split("\0")


def send(process: int, number: signal.Signals = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError):  # the process may already have exited
        os.kill(process, number)
