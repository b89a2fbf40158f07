"""Define the interface of a system, and run its server in temporary files."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from asyncio import ensure_future
from asyncio import sleep as pause_for
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import ClassVar

START = 60.0  # seconds that a server may take to start
END = 15.0
MANY = 1000  # number of messages per call, if the client does not batch
PAUSE = 0.001  # seconds between messages when latency is measured

# Gets and acknowledges a message, and returns its arrival time.
Get = Callable[[], Awaitable[float]]
Put = Callable[[bytes], Awaitable[object]]  # puts a message and waits for the ack


class Failed(Exception):
    """The server did not start, or the client cannot use it."""


class System(ABC):
    """A measured system and its processes."""

    name: ClassVar[str]
    setup: ClassVar[str]  # the settings of the server and the client
    share: ClassVar[float]  # fraction of the fastest system's messages, so that rounds are short
    modules: ClassVar[tuple[str, ...]] = ()
    programs: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self.made = 0
        self.servers: list[Server] = []

    @classmethod
    def missing(cls) -> list[str]:
        """Return the programs that this machine lacks."""
        return [
            *(f"the program {each}" for each in cls.programs if program(each) is None),
            *(f"the Python package {each}" for each in cls.modules if find_spec(each) is None),
        ]

    def new_name(self) -> str:
        self.made += 1
        return f"bench{self.made}"

    def run(
        self, command: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None
    ) -> Server:
        self.servers.append(Server(command, log, env))
        return self.servers[-1]

    def stop(self) -> None:
        for each in reversed(self.servers):
            each.end()

    @abstractmethod
    def start(self, directory: Path) -> None:
        """Start the server with all its files in a directory; return when it answers."""

    @abstractmethod
    def version(self) -> str: ...


class Peer(System):
    """A server and its Python client, used in the fastest way.

    Each measurement creates its own topics or queues, and deletes them at the end. It returns the
    seconds from the first call until the last message was stored, or received and acknowledged.
    """

    address: str  # host:port of the running server

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @abstractmethod
    async def put(self, values: list[bytes]) -> float:
        """Put with one publisher, one call per message, to a topic with one subscription."""

    @abstractmethod
    async def get(self, values: list[bytes]) -> float:
        """Get and acknowledge stored messages with one subscription."""

    @abstractmethod
    async def fan_out(self, values: list[bytes], subscribers: int) -> float:
        """Put with one publisher; get and acknowledge all messages with each subscriber."""

    @abstractmethod
    def subscriber(self, name: str) -> AbstractAsyncContextManager[Get]:
        """Subscribe to a new topic, and delete it at the end."""

    @abstractmethod
    def publisher(self, name: str) -> AbstractAsyncContextManager[Put]:
        """Connect to a topic that has a subscriber."""

    async def trips(self, values: list[bytes]) -> list[float]:
        """Return the seconds from each put until a waiting subscriber has the message."""
        name, times = self.new_name(), []
        async with self.subscriber(name) as get, self.publisher(name) as put:
            for value in values:
                getting = ensure_future(get())
                await pause_for(PAUSE)
                began = perf_counter()
                putting = ensure_future(put(value))
                times.append(await getting - began)
                await putting
        return times

    @abstractmethod
    async def publish(self, values: list[bytes], publishers: int) -> float:
        """Put with concurrent publishers that wait for each ack."""


class Server:
    """A process in its own session, so that Ctrl-C reaches only the benchmark, which stops it."""

    def __init__(
        self, command: Sequence[str | Path], log: Path, env: Mapping[str, str] | None
    ) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | dict(env or {}),
            )

    def wait_until(self, ready: Callable[[], bool]) -> None:
        until = monotonic() + START
        while not ready():
            if self.process.poll() is not None or monotonic() > until:
                tail = self.log.read_text(errors="replace")[-500:]
                raise Failed(f"{self.process.args!r} did not start: {tail}")
            sleep(0.05)

    def end(self) -> None:
        """Terminate the process and its children, and kill them if they do not end."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
                self.process.wait(END)
            except ProcessLookupError:
                return
            except subprocess.TimeoutExpired:
                continue


def say(text: str) -> None:
    """Print progress."""
    print(text, file=sys.stderr, flush=True)


def mind_signals() -> None:
    """Treat SIGTERM like Ctrl-C, so that the benchmark stops all processes.

    A running event loop handles Ctrl-C itself, and an exception would bypass that.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))


def program(name: str) -> Path | None:
    """Return the path of a program: next to the interpreter, in Debian's directory, or on PATH."""
    folders = [Path(sys.executable).parent, "/usr/lib/rabbitmq/bin", os.environ.get("PATH", "")]
    found = shutil.which(name, path=os.pathsep.join(map(str, folders)))
    return Path(found) if found else None


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
