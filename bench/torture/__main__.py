"""Torture a live group of three nodes and check that it kept every guarantee.

Three nodes run in their own network namespaces. Publishers, subscribers and observers use them for
some minutes. Meanwhile nodes are killed (kill -9), paused (SIGSTOP for 5 s) and partitioned, one
disk loses its unsynced bytes, and clients are killed. Then the topics are compared with the records
of the clients (lost, duplicated, out of order). The history of all calls is checked for
linearizability. The report is printed and written to DIRECTORY/report.json.

    python -m bench.torture [--minutes 10] [--messages 1000000] [--seed 1] [--json]

It needs root to create the namespaces, and removes them at the end.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import Any

from bench.torture.client import HISTORY, lines
from bench.torture.cluster import CLIENTS, NODES, Cluster
from bench.torture.hosts import Hosts, HostsUnavailable
from bench.torture.strikes import Strikes

TOPICS = [f"topic{number}" for number in range(6)]
PUBLISHERS, SUBSCRIBERS, OBSERVERS = 2, 2, 1
ROLES = {"publisher": PUBLISHERS, "subscriber": SUBSCRIBERS, "observer": OBSERVERS}
START_SECONDS = 60.0
SETTLE_SECONDS = 180.0
LOOK_EVERY = 15.0
FAULTS = ("lost", "doubled", "out_of_order")
PACE = 1.5  # publishers use a higher rate, because they wait during elections


class Failed(Exception):
    """The run could not be finished."""


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def until(what: str, seconds: float, reached: Any) -> None:
    give_up = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > give_up:
            raise Failed(f"still waiting for {what} after {seconds:g} s")
        time.sleep(0.2)


def start(cluster: Cluster, options: argparse.Namespace) -> None:
    for name in NODES:
        cluster.nodes[name].start()
        until(f"an answer from {name}", START_SECONDS, lambda: cluster.status() is not None)
    until("three members", START_SECONDS, lambda: len(members(cluster)) == len(NODES))
    topics = ["--topics", ",".join(TOPICS)]
    creator = cluster.client("creator", ["creator", *topics])
    creator.start()
    if creator.wait(START_SECONDS):
        raise Failed(f"cannot create the topics; see {creator.log}")
    rate = options.messages / (60 * options.minutes) / PUBLISHERS * PACE
    for role, count in ROLES.items():
        for number in range(count):
            name, words = f"{role}{number}", [role, *topics, "--seed", str(options.seed)]
            cluster.clients[name] = cluster.client(name, [*words, "--rate", str(rate)])
    for client in cluster.clients.values():
        client.start()


def members(cluster: Cluster) -> list[Any]:
    status = cluster.status()
    return list(status["members"]) if status else []


def torture(cluster: Cluster, options: argparse.Namespace) -> Strikes:
    """Inject faults until enough messages are stored, for one to two times the given minutes."""
    strikes = Strikes(cluster, random.Random(options.seed), say)
    over = time.monotonic() + 60 * options.minutes
    last = over + 60 * options.minutes  # a slow machine gets twice the time
    look = time.monotonic() + LOOK_EVERY
    while time.monotonic() < over:
        strikes.turn()
        for process in (*cluster.nodes.values(), *cluster.clients.values()):
            if not process.running and process.name not in strikes.troubled:
                raise Failed(f"{process.name} ended unexpectedly; see {process.log}")
        if time.monotonic() > look:
            look = time.monotonic() + LOOK_EVERY
            count = acknowledged(cluster)
            say(f"            {count:,} messages acknowledged")
            if count < options.messages and look > over and over < last:
                over = look  # a slow machine gets more time
        time.sleep(0.05)
    strikes.calm()
    return strikes


def acknowledged(cluster: Cluster) -> int:
    return sum(len(line["offsets"]) for line in lines(cluster.directory, "puts"))


def settle(cluster: Cluster) -> dict[str, Any]:
    """Let publishers finish and subscribers read to the end. Return the findings of the audit."""
    until("a leader", SETTLE_SECONDS, lambda: bool((cluster.status() or {}).get("leader")))
    say("no more faults; waiting for publishers and subscribers to finish")
    statuses: dict[str, int] = {}
    publishers = [name for name in cluster.clients if name.startswith("publisher")]
    others = [name for name in cluster.clients if name not in publishers]
    for name in publishers:
        statuses[name] = cluster.clients[name].end(SETTLE_SECONDS)
    say("comparing the topics with the clients' records")
    read_on(cluster)
    for name in others:
        statuses[name] = cluster.clients[name].end(SETTLE_SECONDS)
    bad = {name: status for name, status in statuses.items() if status}
    if bad:
        raise Failed(f"clients failed with these statuses: {bad}; see their logs")
    return {**audited(cluster), **checked(cluster)}


def read_on(cluster: Cluster) -> None:
    """Wait until the subscribers together have read each message SUBSCRIBERS times."""
    due = SUBSCRIBERS * audited(cluster)["messages"]

    def read() -> bool:
        got = sum(len(line["digests"]) for line in lines(cluster.directory, "gets"))
        return bool(got >= due)

    until("the subscribers to read all messages", SETTLE_SECONDS, read)


def audited(cluster: Cluster) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.torture.audit", cluster.server, str(cluster.directory)]
    command = cluster.hosts.on(CLIENTS, [*command, *TOPICS])
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=600)
    result: dict[str, Any] = json.loads(found.stdout)
    return result


def checked(cluster: Cluster) -> dict[str, Any]:
    """Check the histories of all clients for linearizability."""
    say("checking the histories of all clients")
    files = sorted(map(str, cluster.directory.glob(f"*.{HISTORY}")))
    command = [sys.executable, "-m", "oncecast", "history", "check", "--json", *files]
    found = subprocess.run(command, check=False, stdout=subprocess.PIPE, timeout=1800)
    return {"linearizable": found.returncode == 0, "history": json.loads(found.stdout)}


def run(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    with Hosts([*NODES, CLIENTS]) as hosts:
        cluster = Cluster(hosts, directory)
        try:
            say("starting three nodes, each on its own host")
            start(cluster, options)
            began = time.monotonic()
            strikes = torture(cluster, options)
            seconds = time.monotonic() - began
            findings = settle(cluster)
        finally:
            cluster.kill()
    return {
        "seed": options.seed,
        "seconds": round(seconds, 1),
        "strikes": strikes.counts,
        "timeline": [list(strike) for strike in strikes.done],
        **findings,
    }


def show(report: dict[str, Any]) -> None:
    strikes = ", ".join(f"{count} x {kind}" for kind, count in report["strikes"].items())
    print(f"{report['messages']:,} messages in {report['seconds']:.0f} s, seed {report['seed']}")
    print(f"  faults         {strikes}")
    print(f"  acknowledged   {report['acknowledged']:,}")
    print(f"  delivered      {report['delivered']:,} to {SUBSCRIBERS} subscribers")
    for kind in FAULTS:
        print(f"  {kind.replace('_', ' '):<14} {report[kind]}")
    print(f"  linearizable   {'yes' if report['linearizable'] else 'NO'}")
    for example in report["examples"]:
        print(f"    {example}")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.torture",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="duration of the run in minutes (default: 10)"
    )
    parser.add_argument(
        "--messages",
        type=int,
        default=1_000_000,
        help="minimum number of messages (default: 1,000,000)",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed for choosing faults (default: 1)")
    parser.add_argument(
        "--directory", help="keep all files in this directory (default: a temporary directory)"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    options = parser.parse_args()
    if not 0 < options.minutes < inf:
        parser.error(f"--minutes is {options.minutes:g}; use a number above 0")
    with ExitStack() as stack:
        made = options.directory or stack.enter_context(tempfile.TemporaryDirectory())
        directory = Path(made)
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            parser.error(f"{directory}: {error.strerror}; use a writable directory")
        if any(directory.iterdir()):
            parser.error(f"{directory} is not empty; use a new directory")
        try:
            report = run(options, directory)
        except (Failed, HostsUnavailable) as error:
            say(f"torture: {error}")
            return 2
        (directory / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    if options.json:
        print(json.dumps(report))
    else:
        show(report)
    faults = [kind for kind in FAULTS if report[kind]]
    return 1 if faults or not report["linearizable"] else 0


if __name__ == "__main__":
    sys.exit(main())
