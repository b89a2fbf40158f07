"""Measure how long a new node takes to join a group under load, and how much puts slow down.

Three nodes run as processes on loopback, with real fsyncs. A client puts at a constant rate. Then
one member is removed and a node with an empty disk replaces it (`removed`). Or a member loses its
disk and returns with an empty one (`wiped`). The topics keep all messages, so the new node has to
fetch all of them. With `--backlog`, the topics have that many messages before the load begins, and
the new node fetches a snapshot first.

    python -m bench.seating [--how wiped] [--rate 20000] [--clients 4] [--backlog 0] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import oncecast
from bench.failover import PATIENCE, Group, Node, say, until
from oncecast import blocking
from oncecast.errors import OncecastError
from oncecast.wire.frames import GroupView

TICKS = 250  # number of `put_many` calls per second and client
BEHIND_MAX = 1.0  # maximum delay of acks in seconds; the client waits if they are later
# Seconds of load before the measurement, and of the measurement before the change.
WARM_UP, BEFORE = 5.0, 10.0
MANY = 10_000
VALUES = [os.urandom(100) for _ in range(MANY)]  # random values cannot be compressed
ALLOWED_SECONDS, ALLOWED_LOSS = 10.0, 0.3


async def put_for_ever(server: str, rate: int, clients: int) -> None:
    """Put at this rate, and print the times and numbers of acknowledged messages."""
    async with asyncio.TaskGroup() as tasks:
        for number in range(clients):
            tasks.create_task(put_in_turn(server, f"seating{number}", rate // clients))


async def put_in_turn(server: str, topic: str, rate: int) -> None:
    batch, in_flight = rate // TICKS, asyncio.Semaphore(int(TICKS * BEHIND_MAX))
    clock = asyncio.get_running_loop().time
    async with oncecast.connect(server) as client, asyncio.TaskGroup() as tasks:
        await (await client.subscribe(topic, "keeper")).close()

        async def put() -> None:
            await client.put_many(topic, VALUES[:batch])
            print(time.time(), batch, flush=True)
            in_flight.release()

        due = clock()
        while True:
            await in_flight.acquire()
            tasks.create_task(put())
            due = max(due + 1 / TICKS, clock() - BEHIND_MAX)
            await asyncio.sleep(due - clock())


@contextmanager
def load(server: str, rate: int, clients: int, trace: Path) -> Iterator[None]:
    """Run a process that puts."""
    words = ["--put", server, "--rate", str(rate), "--clients", str(clients)]
    command = [sys.executable, "-m", "bench.seating", *words]
    with trace.open("wb") as out, subprocess.Popen(command, stdout=out) as process:
        try:
            yield
        finally:
            process.kill()


def acked(trace: Path, begin: float, end: float) -> float:
    """Return the acknowledged messages per second between these times."""
    rows = [line.split() for line in trace.read_text().splitlines()]
    return sum(int(row[1]) for row in rows if begin <= float(row[0]) < end) / (end - begin)


def look(server: str) -> GroupView | None:
    with suppress(OncecastError), blocking.connect(server, timeout=5.0) as client:
        return client.group()
    return None


def incarnation_of(server: str, address: str) -> int:
    """Return the incarnation in which this node is a member, or 0."""
    view = look(server)
    members = () if view is None else view.members
    return next((member.incarnation for member in members if member.node == address), 0)


def fill(server: str, messages: int) -> None:
    """Put a backlog that a subscription keeps."""
    with blocking.connect(server, timeout=60.0) as client:
        client.subscribe("backlog", "keeper").close()
        for _ in range(0, messages, MANY):
            client.put_many("backlog", VALUES)


def newcomer(group: Group, how: str, directory: Path) -> Node:
    """Remove a member or delete its data, and return the node that replaces it."""
    victim = group.nodes[group.backup()]
    if how == "removed":
        with blocking.connect(group.server) as client:
            client.remove_replica(victim.address)
        victim.kill()
        node = Node(group.spare, directory / "newcomer", victim.flags)
        group.nodes[group.spare] = node
        return node
    victim.kill()
    shutil.rmtree(victim.directory)
    return victim


def take_seat(group: Group, node: Node, how: str) -> None:
    """Start the new node and return when it is a member."""
    others = [each for each in group.addresses if each != node.address]
    before = incarnation_of(",".join(others), node.address)
    node.start(others)
    say(f"  {node.address} joins")
    if how == "removed":  # the group has one fewer member
        with blocking.connect(",".join(others), timeout=PATIENCE) as client:
            until("an offer", lambda: "yes" if node.address in client.group().offers else None)
            client.add_replica(node.address)
    else:
        known = (0, before)
        until(
            "a seat",
            lambda: None if incarnation_of(",".join(others), node.address) in known else "yes",
        )


def measure(how: str, rate: int, clients: int, backlog: int, directory: Path) -> dict[str, Any]:
    group = Group(directory, 1.0, 2.0)
    try:
        group.leader()
        fill(group.server, backlog)
        trace = directory / "acks"
        with load(group.server, rate, clients, trace):
            time.sleep(WARM_UP + BEFORE)
            before = time.time()
            node = newcomer(group, how, directory)
            began = time.time()
            take_seat(group, node, how)
            seated = time.time()
            time.sleep(BEFORE)
            after = time.time()
            slots = look(group.server)
        rates = {
            "before": acked(trace, before - BEFORE, before),
            "during": acked(trace, began, seated),
            "after": acked(trace, seated, after),
        }
    finally:
        group.end()
    loss = 1 - rates["during"] / rates["before"]
    return {
        "how": how,
        "rate": rate,
        "clients": clients,
        "backlog": backlog,
        "slots": 0 if slots is None else slots.applied,
        "seconds": round(seated - began, 2),
        **{f"puts_{name}": round(each) for name, each in rates.items()},
        "loss": round(loss, 3),
        "good": seated - began <= ALLOWED_SECONDS and loss < ALLOWED_LOSS,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--how", choices=("removed", "wiped"), default="wiped")
    parser.add_argument("--rate", type=int, default=20_000, help="messages to put per second")
    parser.add_argument(
        "--clients",
        type=int,
        default=4,
        help="number of clients, each of which puts to its own topic (default: 4)",
    )
    parser.add_argument(
        "--backlog", type=int, default=0, help="messages to put before the load starts"
    )
    parser.add_argument("--put", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rate, clients = arguments.rate, arguments.clients
    if arguments.put:
        asyncio.run(put_for_ever(arguments.put, rate, clients))
        return 0
    with tempfile.TemporaryDirectory() as made:
        result = measure(arguments.how, rate, clients, arguments.backlog, Path(made))
    if arguments.json:
        print(json.dumps(result))
    else:
        print(f"{result['how']}: a seat after {result['seconds']} s (limit {ALLOWED_SECONDS:g} s)")
        print(f"  puts per second: {result['puts_before']} before, {result['puts_during']} during,")
        print(f"  {result['puts_after']} after; {result['loss']:.0%} fewer during (limit 30%)")
    return 0 if result["good"] else 1


if __name__ == "__main__":
    sys.exit(main())
