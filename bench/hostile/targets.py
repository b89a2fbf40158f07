"""Run the nodes to attack, on loopback, with or without a cluster secret, TLS and users."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import oncecast
from bench.hostile.ways import Way
from bench.peers.peer import Failed, Server, answers, free_port
from oncecast.errors import NotAuthenticated, OncecastError
from oncecast.network.handshake import CLIENT, PEER
from oncecast.network.tls import Tls

HONEST, MALLORY, ROOT = "honest", "mallory", "root"
PASSWORD = "a password that is not guessed"
TOPIC = "honest"  # attackers do not use this topic
GHOST = "127.0.0.1:9"  # the id of a peer that is not a member
START = 60.0
PATIENCE = 60.0  # seconds that an honest call may take before the node counts as stuck
MEMORY_MB_MAX = 200.0  # maximum growth compared with the idle node


class Kind(NamedTuple):
    """The safeguards of a target."""

    name: str
    nodes: int = 1
    secret: bool = False
    secured: bool = False  # whether it uses TLS, users and rules


KINDS = (
    Kind("open node"),
    Kind("secured node", secured=True),
    Kind("group", nodes=3, secret=True),
    Kind("secured group", nodes=3, secret=True, secured=True),
)


@dataclass(frozen=True)
class Tokens:
    honest: str = ""
    mallory: str = ""


class Target:
    """One node or a group of three. `with target:` runs it."""

    def __init__(self, kind: Kind, directory: Path, flags: Sequence[str] = ()) -> None:
        self.kind, self.directory, self.flags = kind, directory, tuple(flags)
        self.servers: list[Server] = []
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(kind.nodes)]
        self.tokens = Tokens()
        self.idle_mb: list[float] = []
        self._program: tuple[str, ...] = ("-m", "oncecast")

    def recorded(self, file: Path) -> Target:
        """Let the nodes record the messages that they send to each other."""
        self._program = ("-m", "bench.hostile.recorded", str(file))
        return self

    @property
    def address(self) -> str:
        return ",".join(self.addresses)

    # -- start and stop --

    def __enter__(self) -> Target:
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for server in reversed(self.servers):
            server.end()
        self.servers.clear()

    def _start(self) -> None:
        if self.kind.secured:
            self._certify()
        if self.kind.secret:
            self._secret_file.touch(0o600)
            self._secret_file.write_bytes(self.secret)
        for number, address in enumerate(self.addresses):
            port = int(address.rpartition(":")[2])
            log = self.directory / f"{number}.log"
            server = Server([sys.executable, *self._program, *self._words(number)], log, None)
            self.servers.append(server)
            server.wait_until(lambda port=port: answers(port))  # type: ignore[misc]
        asyncio.run(self._settle())
        self.idle_mb = [memory_mb(pid) for pid in self.pids]

    def _words(self, number: int) -> list[str]:
        data = str(self.directory / f"data{number}")
        words = ["serve", "--listen", self.addresses[number], "--data", data]
        words += ["--replicas", str(self.kind.nodes), *self.flags]
        if number:
            words += ["--join", ",".join(self.addresses[:number])]
        if self.kind.secret:
            words += ["--cluster-secret-file", str(self._secret_file)]
        if self.kind.secured:
            files = (
                f"--tls-certificate {self._file('node-node.pem')} --tls-key "
                f"{self._file('node-node.key')} --tls-ca {self._file('ca.pem')}"
            )
            words += [*files.split(), "--tls-clients", "optional"]
        return words

    def _certify(self) -> None:
        for words in ("init", "node 127.0.0.1 --name node"):
            command = [sys.executable, "-m", "oncecast", "cert", *words.split()]
            command += ["--dir", str(self.directory / "certs")]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def _file(self, name: str) -> str:
        return str(self.directory / "certs" / name)

    @cached_property
    def secret(self) -> bytes:
        return secrets.token_hex(32).encode()

    @property
    def _secret_file(self) -> Path:
        return self.directory / "secret"

    async def _settle(self) -> None:
        """Wait until all nodes are members. Add users if the target has any."""
        async with oncecast.connect(
            self.address, tls=self.tls, timeout=START, connect_timeout=START
        ) as client:
            for _ in range(int(START / 0.1)):
                with suppress(OncecastError):
                    view = await client.group()
                    if len(view.members) == self.kind.nodes and view.leader:
                        break
                await asyncio.sleep(0.1)
            else:
                raise Failed(f"{self.kind.name}: {self.kind.nodes} nodes have not formed a group")
            if self.kind.secured:
                await client.access.add_user(ROOT, PASSWORD, admin=True)
        if self.kind.secured:
            await self._accepted(user=ROOT, password=PASSWORD)
            async with oncecast.connect(
                self.address, tls=self.tls, user=ROOT, password=PASSWORD
            ) as root:
                await self._add_users(root)
            for token in (self.tokens.honest, self.tokens.mallory):
                await self._accepted(token=token)

    async def _accepted(
        self, *, user: str | None = None, password: str | None = None, token: str | None = None
    ) -> None:
        """Wait until every node accepts this login. Followers learn of it a moment later."""
        give_up = monotonic() + START
        for address in self.addresses:
            while True:
                try:
                    async with oncecast.connect(
                        address, tls=self.tls, user=user, password=password, token=token
                    ):
                        break
                except NotAuthenticated as refused:
                    if monotonic() > give_up:
                        raise Failed(f"{self.kind.name}: {refused}") from None
                await asyncio.sleep(0.1)

    async def _add_users(self, root: oncecast.Client) -> None:
        verbs = ("put", "read", "ack", "manage")
        for user in (HONEST, MALLORY):
            await root.access.add_user(user, PASSWORD)
            await root.access.allow(user, *verbs, topic=f"{user}*")
        self.tokens = Tokens(
            await root.access.create_token(HONEST), await root.access.create_token(MALLORY)
        )

    # -- ways in --

    @cached_property
    def tls(self) -> Tls | None:
        return Tls.from_files(ca=self._file("ca.pem")) if self.kind.secured else None

    def ways(self) -> list[Way]:
        """Return the kinds of attackers: clients and peers, with and without credentials."""
        ways = []
        for address in self.addresses[:1]:
            plain = Way(address, CLIENT, ca=self._file("ca.pem") if self.kind.secured else "")
            peer = replace(plain, role=PEER, sender=GHOST)
            ways += [plain, peer]
            if self.kind.secured:
                ways.append(replace(plain, token=self.tokens.mallory))
            if self.kind.secured or self.kind.secret:
                ways.append(self._proved(peer))
        return ways

    def _proved(self, way: Way) -> Way:
        """Return an attacker that is a peer with the cluster's secret and certificate."""
        if self.kind.secured:
            way = replace(
                way, certificate=self._file("node-node.pem"), key=self._file("node-node.key")
            )
        return replace(way, secret=self.secret.decode() if self.kind.secret else "")

    @asynccontextmanager
    async def honest(self) -> AsyncIterator[oncecast.Client]:
        async with oncecast.connect(
            self.address,
            tls=self.tls,
            token=self.tokens.honest or None,
            timeout=PATIENCE,
            connect_timeout=PATIENCE,
        ) as client:
            yield client

    # -- health --

    @property
    def pids(self) -> list[int]:
        return [server.process.pid for server in self.servers]

    def faults(self) -> list[str]:
        """Return the problems: a node has exited, uses too much memory, or does not answer."""
        found = []
        try:  # this check comes first, because a failing node takes a moment to exit
            asyncio.run(self._serve_honest())
        except (OncecastError, TimeoutError) as error:
            found.append(f"{self.kind.name}: an honest client was not served: {error}")
        for server, idle in zip(self.servers, self.idle_mb, strict=True):
            if server.process.poll() is not None:
                tail = server.log.read_text(errors="replace")[-600:]
                found.append(f"{self.kind.name}: a node has exited: {tail}")
            elif (grown := memory_mb(server.process.pid) - idle) > MEMORY_MB_MAX:
                found.append(f"{self.kind.name}: the memory of a node grew by {grown:.0f} MB")
        return found

    async def _serve_honest(self) -> None:
        async with self.honest() as client:
            reading = await client.subscribe(TOPIC, HONEST)
            value = secrets.token_bytes(8)
            await client.put(TOPIC, value)
            async with asyncio.timeout(PATIENCE):
                while (message := await reading.get()) is None or message.value != value:
                    pass
            await reading.close()

    @property
    def running(self) -> bool:
        return all(server.process.poll() is None for server in self.servers)

    @property
    def grown_mb(self) -> float:
        """Return the growth of the largest node since it was idle."""
        grown = [
            memory_mb(server.process.pid) - idle
            for server, idle in zip(self.servers, self.idle_mb, strict=True)
            if server.process.poll() is None
        ]
        return max(grown, default=0.0)


def memory_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1000
    raise Failed(f"process {pid} does not report its memory")


@contextmanager
def running(kind: Kind, root: Path, flags: Sequence[str] = ()) -> Iterator[Target]:
    with Target(kind, root / kind.name.replace(" ", "-"), flags) as target:
        yield target
