"""A replica group, or a ring, on this machine: a process a node, until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from oncecast.cli.cluster.ring_words import Ring
from oncecast.cli.connecting import complain, show
from oncecast.errors import ExitStatus
from oncecast.node.directory import RING, recall

if TYPE_CHECKING:
    from types import FrameType

    from oncecast.client.blocking import Client

TOGETHER = 30.0  # seconds until all must be members
A_SHARE = 5.0  # seconds more for each process of a ring: they take their parts one by one
STOP = 10.0  # seconds until one that does not end in order is killed
NODES = 3  # unless told otherwise; and so many replicas does a group have, if it can
RING_FLAG = "--own-group"
KILLED, LEFT = "was killed; it goes on", "has left; it comes back"
LOG, DATA = "node.log", "data"


class Node(NamedTuple):
    address: str
    directory: Path
    process: subprocess.Popen[bytes]
    words: list[str]  # that started it


class Ended(Exception):
    """One of the nodes has ended by itself."""


def run(arguments: argparse.Namespace) -> int:
    with contextlib.ExitStack() as stack:
        data = arguments.data or stack.enter_context(tempfile.TemporaryDirectory("-oncecast"))
        stop = stack.enter_context(signals())
        nodes: list[Node] = []
        stack.callback(end, nodes)
        try:
            ports = ports_of(Path(data)) or free_ports(arguments.n or NODES, arguments.port)
            if differs(arguments, ports):
                fact = f"{data}: there are {len(ports)} nodes from port {ports[0]} on in it"
                return complain(f"{fact}; leave out -n and --port, or name another directory")
            ring = arguments.own_group
            if others(Path(data), ports, ring):
                kind, remedy = ("group", "leave out") if ring else ("ring", "say")
                fact = f"{data}: the nodes in it are a {kind}"
                return complain(f"{fact}; {remedy} --own-group, or name another directory")
            founded = any(is_member(Path(data), port) for port in ports)
            size = NODES if ring else max(NODES, len(ports))
            for number, port in enumerate(ports):
                # The first one founds the cluster, unless it is there; the others join it.
                join = ports if founded else ports[:number]
                nodes.append(start(Path(data), port, join, size, ring=ring))
            if not come_together(nodes, stop, ring):
                return ExitStatus.OK
            tell(arguments, nodes, data if arguments.data else None)
            watch(nodes, stop)
        except Ended as error:
            return complain(error)
        except OSError as error:
            why = error.strerror or str(error)
            return complain(f"{data}: {why}; give a directory that can be written, or none")
    return ExitStatus.OK


@contextlib.contextmanager
def signals() -> Iterator[threading.Event]:
    """Set when somebody wants this to end."""
    stop = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        stop.set()

    before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ports_of(data: Path) -> list[int]:
    """Of an earlier run in the same directory: a replica is known by its address."""
    names = [each.name for each in data.iterdir()] if data.is_dir() else []
    return sorted(int(name) for name in names if name.isdecimal())


def differs(arguments: argparse.Namespace, ports: list[int]) -> bool:
    """Whether somebody asks for other nodes than there are."""
    return arguments.n not in (None, len(ports)) or arguments.port not in (0, ports[0])


def others(data: Path, ports: list[int], ring: bool) -> bool:
    """Whether the nodes of an earlier run are of the other kind."""
    directories = [data / str(port) / DATA for port in ports]
    return any((each / RING).exists() != ring for each in directories if each.is_dir())


def is_member(data: Path, port: int) -> bool:
    """Whether it ever was: who only tried to join has noted others, and not itself."""
    directory = data / str(port) / DATA
    noted = recall(str(directory))
    return (noted is not None and noted.me in noted.members) or (directory / RING).exists()


def free_ports(count: int, first: int) -> list[int]:
    if first:
        return list(range(first, first + count))
    with contextlib.ExitStack() as reserved:
        made = (socket.create_server(("127.0.0.1", 0)) for _ in range(count))
        return sorted(reserved.enter_context(each).getsockname()[1] for each in made)


def start(data: Path, port: int, join: list[int], size: int, *, ring: bool = False) -> Node:
    directory, address = data / str(port), f"127.0.0.1:{port}"
    directory.mkdir(parents=True, exist_ok=True)
    words = ["serve", "--listen", address, "--data", str(directory / DATA)]
    words += [RING_FLAG] if ring else []
    words += ["--replicas", str(size)] if size != NODES else []
    others = [f"127.0.0.1:{each}" for each in join if each != port]
    words += ["--join", ",".join(others)] if others else []
    with (directory / LOG).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "oncecast", *words],
            stdin=subprocess.DEVNULL,
            stderr=log,
            # Ctrl-C is for this process: it ends them, one by one.
            start_new_session=True,
        )
    return Node(address, directory, process, words)


def come_together(nodes: list[Node], stop: threading.Event, ring: bool) -> bool:
    """Whether all are members and know it; false if somebody wants it to end before."""
    patience = TOGETHER + A_SHARE * len(nodes) * ring
    give_up = monotonic() + patience
    while not stop.wait(0.1):
        check(nodes)
        if all(is_in(node, len(nodes), ring) for node in nodes):
            return True
        if monotonic() > give_up:
            words = "; ".join(f"{node.address}: {last_word(node)}" for node in nodes)
            raise Ended(f"the nodes have not come together in {patience:g} s; {words}")
    return False


def is_in(node: Node, count: int, ring: bool) -> bool:
    from oncecast import blocking
    from oncecast.errors import OncecastError

    try:
        with blocking.connect(node.address, connect_timeout=1.0, timeout=5.0) as client:
            return is_in_ring(client, count) if ring else is_in_group(client, count)
    except OncecastError:
        return False


def is_in_group(client: Client, count: int) -> bool:
    """All are members that should be. Who was sent away in an earlier run hears of no leader."""
    view = client.group()
    members = [each.node for each in view.members]
    if not members:
        return False  # it has not joined yet, whoever leads
    sent_away = view.node not in members
    return (view.quorum or sent_away) and len(members) >= min(count, view.size)


def is_in_ring(client: Client, count: int) -> bool:
    """Each process owns its part of it, and each group has all its replicas."""
    ring = Ring(client.ring())
    owners = [each for each in ring.groups if each.size and each.process]
    return len(owners) >= count and ring.serves and not ring.lacking


def check(nodes: list[Node]) -> None:
    for node in nodes:
        status = node.process.poll()
        left = status == 0 and RING_FLAG in node.words  # which one may do
        if not left and status not in (None, -signal.SIGKILL, -signal.SIGTERM):
            raise Ended(f"{node.address} has ended with status {status}: {last_word(node)}")


def last_word(node: Node) -> str:
    return ((node.directory / LOG).read_text(errors="replace").splitlines() or ["no word"])[-1]


def tell(arguments: argparse.Namespace, nodes: list[Node], data: str | None) -> None:
    server = ",".join(node.address for node in nodes)
    processes = [{"node": each.address, "pid": each.process.pid} for each in nodes]
    lines = [f"{each.address}  process {each.process.pid}" for each in nodes]
    lines += [
        "",
        f"export ONCECAST_SERVER={server}",
        "oncecast cluster status",
        "",
        f"Ctrl-C ends it; what it has is in {data}" if data else "Ctrl-C ends it, with all it has",
    ]
    show(arguments, {"server": server, "nodes": processes, "data": data}, "\n".join(lines))
    sys.stdout.flush()


def watch(nodes: list[Node], stop: threading.Event) -> None:
    """A node that somebody kills, to see what happens, is not missed: the others go on."""
    told: list[Node] = []
    while not stop.wait(0.5):
        check(nodes)
        ended = [node for node in nodes if node.process.poll() is not None]
        if len(ended) == len(nodes):
            raise Ended("all nodes have ended")
        for node in ended:
            if node not in told:
                told.append(node)
                say_how_to_go_on(node, nodes, KILLED if node.process.returncode else LEFT)


def say_how_to_go_on(node: Node, nodes: list[Node], fate: str = KILLED) -> None:
    words = node.words
    if "--join" not in words:  # it has founded the group, which is there
        others = [each.address for each in nodes if each is not node]
        words = [*words, "--join", ",".join(others)]
    again = shlex.join(["oncecast", *words])
    print(f"{node.address} {fate} with:\n{again}", file=sys.stderr, flush=True)


def end(nodes: list[Node]) -> None:
    for node in nodes:
        if node.process.poll() is None:
            os.kill(node.process.pid, signal.SIGCONT)  # one that is stopped hears nothing
            node.process.terminate()
    give_up = monotonic() + STOP
    for node in nodes:
        try:
            node.process.wait(max(0.0, give_up - monotonic()))
        except subprocess.TimeoutExpired:
            node.process.kill()
            node.process.wait()
