"""Measure failover: kill each of three nodes while the automated client puts and gets.

The leader and then a follower are killed with SIGKILL and restarted, several times each. Then the
leader is stopped with SIGTERM the same number of times; it hands over before it stops. Finally it
is paused with SIGSTOP. Meanwhile, `oncecast load` puts and gets. The report counts lost, duplicated
and reordered messages, which must be 0. It also shows the longest time without an ack in any topic,
with default and with fast timers. With --ring each node has its own group and backs up the groups
of its peers; the leader is then the node that leads most groups.

    python bench/failover.py [--ring] [--messages 200000] [--kills 10] [--timers both] [--json]
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from oncecast import blocking
from oncecast.errors import OncecastError
from oncecast.wire.frames import GroupView

TIMERS = {  # seconds: heartbeat, suspicion, and the maximum time between acks
    "default": (1.0, 2.0, 3.0),
    "fast": (0.1, 0.4, 1.0),
}
STOPPED = 5.0  # seconds of a SIGSTOP
ALLOWED_IN_ORDER = 0.3  # maximum seconds without an ack when the leader stops cleanly
PATIENCE = 60.0
TOPICS = 12
KILL = signal.SIGKILL


class Node:
    """A node, which can be killed and restarted."""

    def __init__(self, address: str, directory: Path, flags: list[str]) -> None:
        self.address, self.directory, self.flags = address, directory, flags
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, join: list[str]) -> None:
        words = ["serve", "--listen", self.address, "--data", str(self.directory), *self.flags]
        words += ["--join", ",".join(join)] if join else []
        with self.directory.with_suffix(".log").open("ab") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "oncecast", *words], stderr=log)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self, number: int = KILL) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait()

    def memory_mb(self) -> float:
        """Return the resident memory."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


class Group:
    first: tuple[str, ...] = ()  # additional flags for the first node

    def __init__(self, directory: Path, heartbeat: float, suspicion: float) -> None:
        with ExitStack() as reserved:
            made = (socket.create_server(("127.0.0.1", 0)) for _ in range(4))
            ports = [reserved.enter_context(each).getsockname()[1] for each in made]
        *self.addresses, self.spare = [f"127.0.0.1:{port}" for port in ports]
        flags = ["--heartbeat", str(heartbeat), "--suspicion", str(suspicion)]
        self.nodes = {
            address: Node(
                address, directory / f"node{number}", flags + list(() if number else self.first)
            )
            for number, address in enumerate(self.addresses)
        }
        for number, node in enumerate(self.nodes.values()):
            node.start(self.addresses[:number])

    @property
    def server(self) -> str:
        return ",".join(self.addresses)

    def look(self, node: str) -> GroupView | None:
        with (
            suppress(OncecastError),
            blocking.connect(node, connect_timeout=1.0, timeout=1.0) as client,
        ):
            return client.group()
        return None

    def leader(self) -> str:
        """Return the leader that all three nodes follow."""
        return until("a leader that all nodes follow", self._leader)

    def _leader(self) -> str | None:
        return self._led(self.addresses)

    def _led(self, replicas: list[str]) -> str | None:
        """Return the leader if all views agree on it and none is over 200 slots behind."""
        views = [self.look(each) for each in replicas]
        leaders = {view.leader if view is not None and view.quorum else "" for view in views}
        applied = [view.applied for view in views if view is not None]
        (leader, *others) = leaders
        return None if others or not leader or max(applied) > min(applied) + 200 else leader

    def backup(self) -> str:
        leader = self.leader()
        return next(each for each in self.addresses if each != leader)

    def bounce(self, address: str, number: int = KILL) -> None:
        node = self.nodes[address]
        node.kill(number)
        node.start(self.addresses)

    def end(self) -> None:
        for node in self.nodes.values():
            node.kill()


class Ring(Group):
    """The nodes of a ring. Each has its own group and a replica of each other group."""

    first = ("--own-group",)

    def _leader(self) -> str | None:
        leads = self._leads()
        return max(self.addresses, key=lambda each: leads[each]) if leads.total() == 3 else None

    def backup(self) -> str:
        self.leader()
        leads = self._leads()
        return min(self.addresses, key=lambda each: leads[each])

    def _leads(self) -> Counter[str]:
        """Return how many groups each node leads. Skip groups without an arc or leader."""
        leads: Counter[str] = Counter()
        with (
            suppress(OncecastError),
            blocking.connect(self.server, connect_timeout=1.0, timeout=1.0) as client,
        ):
            for arc in client.ring().groups:
                leader = self._led([f"{each}/{arc.group}" for each in self.addresses])
                if leader and arc.low:
                    leads[leader.partition("/")[0]] += 1
        return leads


def until(what: str, found: Callable[[], str | None]) -> str:
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        result = found()
        if result is not None:
            return result
        time.sleep(0.05)
    raise SystemExit(f"failover: still waiting for {what} after {PATIENCE:g} s")


@contextmanager
def load(group: Group, trace: Path, messages: int, rate: int) -> Iterator[Any]:
    """Start the automated client."""
    words = ["--server", group.server, "--publishes", str(messages), "--rate", str(rate)]
    words += ["--topics", str(TOPICS), "--subscribers", "1", "--json", "--timeout", str(PATIENCE)]
    words += ["--trace", str(trace)]
    command = [sys.executable, "-m", "oncecast", "load", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def trouble(group: Group, kills: int, under_load: Callable[[], bool]) -> dict[str, float]:
    """Inject all faults one after another, and return the time of each by its name."""
    done: dict[str, float] = {}

    def note(what: str) -> None:
        done[what] = time.time()
        say(f"  {what}" + ("" if under_load() else ", but the load has ended"))

    for whom, choose in (("leader", group.leader), ("backup", group.backup)):
        for number in range(kills):
            victim = choose()
            note(f"{whom} killed {number + 1}")
            group.bounce(victim)
    for number in range(kills):
        victim = group.leader()
        note(f"leader ended {number + 1}")
        group.bounce(victim, signal.SIGTERM)
    node = group.nodes[group.leader()]
    note("leader stopped")
    node.signal(signal.SIGSTOP)
    time.sleep(STOPPED)
    node.signal(signal.SIGCONT)
    note("leader continued")
    group.leader()
    return done


def has_acks(trace: Path) -> bool:
    return trace.exists() and '"kind":"stored"' in trace.read_text()


def gaps(trace: Path, done: dict[str, float]) -> dict[str, float]:
    """Return the longest time between acks of a topic after each fault."""
    acks: dict[str, list[float]] = {}
    with trace.open() as lines:
        for line in lines:
            if '"kind":"stored"' in line:
                row = json.loads(line)
                acks.setdefault(row["topic"], []).append(row["time"])
    events = sorted((at, what) for what, at in {"begin": 0.0, **done}.items())
    longest: dict[str, float] = {}  # each gap belongs to the last fault before it
    for of_topic in acks.values():
        for before, after in pairwise(sorted(of_topic)):
            what = events[bisect_right(events, (before + 0.05, "~")) - 1][1]
            longest[what] = max(longest.get(what, 0.0), round(after - before, 3))
    return longest


def measure(
    kind: type[Group], name: str, messages: int, kills: int, directory: Path
) -> dict[str, Any]:
    heartbeat, suspicion, allowed = TIMERS[name]
    say(f"{name} timers: a heartbeat every {heartbeat:g} s, suspicion after {suspicion:g} s")
    # The load must run longer than the faults.
    seconds = 3 * kills * (suspicion + 4.5) + STOPPED + 15.0
    group = kind(directory, heartbeat, suspicion)
    try:
        group.leader()
        trace = directory / "trace.jsonl"
        with load(group, trace, messages, int(messages / seconds)) as process:
            until("the load's first ack", lambda: "yes" if has_acks(trace) else None)
            done = trouble(group, kills, lambda: process.poll() is None)
            memory = max(node.memory_mb() for node in group.nodes.values())
            out, _ = process.communicate()
    finally:
        group.end()
    if not out:
        raise SystemExit(f"failover: the load failed with status {process.returncode}")
    report = json.loads(out)
    found = gaps(trace, done)
    in_order = max(
        (gap for what, gap in found.items() if what.startswith("leader ended")), default=0.0
    )
    faults = {each: report[each] for each in ("lost", "duplicated", "out_of_order")}
    return {
        "nodes": kind.__name__.lower(),
        "timers": name,
        "messages": report["puts"],
        "deliveries": report["deliveries"],
        "forgone": report["forgone"],
        "seconds": report["seconds"],
        **faults,
        "longest_gap": max(found.values()),
        "allowed_gap": allowed,
        "longest_gap_in_order": in_order,
        "gaps": found,
        "put_ms": report["put_ms"],
        "memory_mb": round(memory, 1),
        "good": not any(faults.values())
        and max(found.values()) <= allowed
        and in_order <= ALLOWED_IN_ORDER,
    }


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ring", action="store_true", help="run three groups instead of one")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument(
        "--kills",
        type=int,
        default=10,
        help="number of times to kill the leader, and then a follower (default: 10)",
    )
    parser.add_argument("--timers", choices=("both", *TIMERS), default="both")
    parser.add_argument(
        "--directory",
        help="keep the nodes' files in this directory (default: a temporary directory)",
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = []
    for name in TIMERS if arguments.timers == "both" else (arguments.timers,):
        with ExitStack() as stack:
            made = arguments.directory or stack.enter_context(tempfile.TemporaryDirectory())
            directory = Path(made) / name
            directory.mkdir(parents=True)
            kind = Ring if arguments.ring else Group
            results.append(measure(kind, name, arguments.messages, arguments.kills, directory))
    for result in results:
        if arguments.json:
            print(json.dumps(result))
            continue
        faults = ", ".join(
            f"{result[each]} {each.replace('_', ' ')}"
            for each in ("lost", "duplicated", "out_of_order")
        )
        gap = f"{result['longest_gap']:.2f} s (limit {result['allowed_gap']:g} s)"
        print(f"{result['timers']} timers: {result['messages']} messages, {faults}")
        puts = ", ".join(f"{name} {figure:g}" for name, figure in result["put_ms"].items())
        print(f"  put: {puts} ms; peak memory of a node: {result['memory_mb']:g} MB")
        print(f"  longest time without an ack {gap}")
        trials = (
            "leader killed",
            "backup killed",
            "leader ended",
            "leader stopped",
            "leader continued",
        )
        for trial in trials:
            found = [at for what, at in result["gaps"].items() if what.startswith(trial)]
            print(f"    {trial:<18}{', '.join(f'{each:.2f}' for each in found)}")
    return 0 if all(result["good"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
