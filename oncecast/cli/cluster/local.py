"""Run a replica group or a ring on this machine, one process per node, until SIGINT or SIGTERM."""

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
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from oncecast.cli.cluster.ring_words import Ring
from oncecast.cli.connecting import complain, show
from oncecast.errors import CannotListen, ExitStatus
from oncecast.network.listener import check_free
from oncecast.node.directory import RING, recall
from oncecast.storage.disk import PRIVATE_DIRECTORY, PRIVATE_FILE

if TYPE_CHECKING:
    from types import FrameType

    from oncecast.client.blocking import Client

TOGETHER = 30.0  # seconds until all nodes must be members
A_SHARE = 5.0  # additional seconds for each process of a ring, because processes join one by one
STOP = 10.0  # seconds between SIGTERM and SIGKILL
NODES = 3  # default number of nodes, and of replicas per group
RING_FLAG = "--own-group"
KILLED, LEFT = "was killed; restart it", "has left; restart it"
LOG, DATA = "node.log", "data"
PORT_MAX = 0xFFFF


class Node(NamedTuple):
    address: str
    directory: Path
    process: subprocess.Popen[bytes]
    words: list[str]  # arguments to `oncecast`


class Ended(Exception):
    """A node exited unexpectedly."""


def run(arguments: argparse.Namespace) -> int:
    with contextlib.ExitStack() as stack:
        data = arguments.data or stack.enter_context(tempfile.TemporaryDirectory("-oncecast"))
        stop = stack.enter_context(signals())
        nodes: list[Node] = []
        stack.callback(end, nodes)
        try:
            ports = ports_of(Path(data)) or free_ports(arguments.n or NODES, arguments.port)
            if differs(arguments, ports):
                fact = f"{data} contains {len(ports)} nodes, starting at port {ports[0]}"
                return complain(f"{fact}; omit -n and --port, or use another directory")
            ring = arguments.own_group
            if is_other_kind(Path(data), ports, ring):
                kind, remedy = ("group", "omit") if ring else ("ring", "add")
                fact = f"the nodes in {data} form a {kind}"
                return complain(f"{fact}; {remedy} --own-group, or use another directory")
            founded = any(is_member(Path(data), port) for port in ports)
            size = NODES if ring else max(NODES, len(ports))
            for port in ports:  # otherwise nodes of another cluster could answer
                check_free(f"127.0.0.1:{port}")
            for number, port in enumerate(ports):
                # The first node starts the cluster unless it exists. The other nodes join it.
                join = ports if founded else ports[:number]
                nodes.append(start(Path(data), port, join, size, ring=ring))
            if not come_together(nodes, stop, ring):
                return ExitStatus.OK
            tell(arguments, nodes, data if arguments.data else None)
            watch(nodes, stop)
        except (Ended, CannotListen) as error:
            return complain(error)
        except OSError as error:
            why = error.strerror or str(error)
            return complain(f"{data}: {why}; use a writable directory, or omit --data")
    return ExitStatus.OK


@contextlib.contextmanager
def signals() -> Iterator[threading.Event]:
    """Yield an event that is set on SIGINT or SIGTERM."""
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
    """Return the ports of an earlier run in this directory. Replicas must keep their addresses."""
    names = [each.name for each in data.iterdir()] if data.is_dir() else []
    return sorted(int(name) for name in names if name.isdecimal())


def differs(arguments: argparse.Namespace, ports: list[int]) -> bool:
    """Return whether the options specify other nodes than those in the directory."""
    return arguments.n not in (None, len(ports)) or arguments.port not in (0, ports[0])


def is_other_kind(data: Path, ports: list[int], ring: bool) -> bool:
    """Return whether the earlier run was a ring and this one is a group, or vice versa."""
    directories = [data / str(port) / DATA for port in ports]
    return any((each / RING).exists() != ring for each in directories if each.is_dir())


def is_member(data: Path, port: int) -> bool:
    """Return whether the node has been a member, and not merely tried to join."""
    directory = data / str(port) / DATA
    noted = recall(str(directory))
    return (noted is not None and noted.me in noted.members) or (directory / RING).exists()


def free_ports(count: int, first: int) -> list[int]:
    if first + count - 1 > PORT_MAX:
        raise Ended(
            f"{count} nodes starting at port {first} need ports above {PORT_MAX}; lower --port"
        )
    if first:
        return list(range(first, first + count))
    with contextlib.ExitStack() as reserved:
        made = (socket.create_server(("127.0.0.1", 0)) for _ in range(count))
        return sorted(reserved.enter_context(each).getsockname()[1] for each in made)


def open_log(directory: Path) -> BinaryIO:
    """Open a node's log file, readable only by its owner."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.fdopen(os.open(directory / LOG, flags, PRIVATE_FILE), "ab")


def start(data: Path, port: int, join: list[int], size: int, *, ring: bool = False) -> Node:
    directory, address = data / str(port), f"127.0.0.1:{port}"
    directory.mkdir(PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    words = ["serve", "--listen", address, "--data", str(directory / DATA)]
    words += [RING_FLAG] if ring else []
    words += ["--replicas", str(size)] if size != NODES else []
    others = [f"127.0.0.1:{each}" for each in join if each != port]
    words += ["--join", ",".join(others)] if others else []
    with open_log(directory) as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "oncecast", *words],
            stdin=subprocess.DEVNULL,
            stderr=log,
            # In a new session, Ctrl-C reaches only this process, which then stops the nodes.
            start_new_session=True,
        )
    return Node(address, directory, process, words)


def come_together(nodes: list[Node], stop: threading.Event, ring: bool) -> bool:
    """Wait until all nodes know that they are members.

    Return False if a signal arrives first. Raise Ended if it takes too long.
    """
    patience = TOGETHER + A_SHARE * len(nodes) * ring
    give_up = monotonic() + patience
    while not stop.wait(0.1):
        check(nodes)
        if all(is_in(node, len(nodes), ring) for node in nodes):
            return True
        if monotonic() > give_up:
            words = "; ".join(f"{node.address}: {last_line(node)}" for node in nodes)
            raise Ended(f"the nodes did not form a cluster within {patience:g} s; {words}")
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
    """Return whether the group is complete, as seen by one node.

    A node removed in an earlier run sees no leader, so do not require a quorum.
    """
    view = client.group()
    members = [each.node for each in view.members]
    if not members:
        return False  # the node has not joined yet
    removed = view.node not in members
    return (view.quorum or removed) and len(members) >= min(count, view.size)


def is_in_ring(client: Client, count: int) -> bool:
    """Return whether each process owns an arc and each group has all its replicas."""
    ring = Ring(client.ring())
    owners = [each for each in ring.groups if each.size and each.process]
    return len(owners) >= count and ring.serves and not ring.lacking


def check(nodes: list[Node]) -> None:
    for node in nodes:
        status = node.process.poll()
        left = status == 0 and RING_FLAG in node.words  # exited after `cluster leave`
        if not left and status not in (None, -signal.SIGKILL, -signal.SIGTERM):
            raise Ended(f"{node.address} exited with status {status}: {last_line(node)}")


def last_line(node: Node) -> str:
    return ((node.directory / LOG).read_text(errors="replace").splitlines() or ["no output"])[-1]


def tell(arguments: argparse.Namespace, nodes: list[Node], data: str | None) -> None:
    server = ",".join(node.address for node in nodes)
    processes = [{"node": each.address, "pid": each.process.pid} for each in nodes]
    lines = [f"{each.address}  process {each.process.pid}" for each in nodes]
    lines += [
        "",
        f"export ONCECAST_SERVER={server}",
        "oncecast cluster status",
        "",
        f"Press Ctrl-C to stop the cluster. The data remains in {data}."
        if data
        else "Press Ctrl-C to stop the cluster and delete its data.",
    ]
    show(arguments, {"server": server, "nodes": processes, "data": data}, "\n".join(lines))
    sys.stdout.flush()


def watch(nodes: list[Node], stop: threading.Event) -> None:
    """Watch the nodes. When one is killed or leaves, print how to restart it."""
    reported: list[Node] = []
    while not stop.wait(0.5):
        check(nodes)
        ended = [node for node in nodes if node.process.poll() is not None]
        if len(ended) == len(nodes):
            raise Ended("all nodes have exited")
        for node in ended:
            if node not in reported:
                reported.append(node)
                say_how_to_go_on(node, nodes, KILLED if node.process.returncode else LEFT)


def say_how_to_go_on(node: Node, nodes: list[Node], fate: str = KILLED) -> None:
    words = node.words
    if "--join" not in words:  # the node started the group, which exists by now
        others = [each.address for each in nodes if each is not node]
        words = [*words, "--join", ",".join(others)]
    again = shlex.join(["oncecast", *words])
    print(f"{node.address} {fate} with:\n{again}", file=sys.stderr, flush=True)


def end(nodes: list[Node]) -> None:
    for node in nodes:
        if node.process.poll() is None:
            os.kill(node.process.pid, signal.SIGCONT)  # a suspended process does not handle SIGTERM
            node.process.terminate()
    give_up = monotonic() + STOP
    for node in nodes:
        try:
            node.process.wait(max(0.0, give_up - monotonic()))
        except subprocess.TimeoutExpired:
            node.process.kill()
            node.process.wait()
