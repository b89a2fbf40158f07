"""Upgrade a group of three nodes from an earlier revision to this one, under load.

    python -m bench.upgrade                 from the commit before the last one
    python -m bench.upgrade --from REVISION

The earlier program is exported with `git archive`, so this needs a clone of the repository. The
nodes of the earlier program write data; then each node is stopped and started with this program, in
place, while a client puts. Finally, each message must be stored once and in order.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from oncecast import blocking
from oncecast.cli.cluster.local import free_ports
from oncecast.errors import OncecastError
from oncecast.wire.frames import GroupView

ROOT = Path(__file__).resolve().parent.parent.parent
FAST = ("--heartbeat", "0.2", "--suspicion", "1.0")
MESSAGES = 500  # number of messages before, between and after the upgrades
PATIENCE = 60.0


def export(revision: str, to: Path) -> None:
    """Write the files of a revision into a directory."""
    made = subprocess.run(
        ["git", "archive", revision, "oncecast"], cwd=ROOT, capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # new in Python 3.11.4
        archive.extractall(to)


class Node:
    def __init__(self, address: str, data: Path) -> None:
        self.address, self.data = address, data
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, program: Path, *join: str) -> None:
        words = ["serve", "--listen", self.address, "--data", str(self.data), *FAST]
        words += ["--join", ",".join(join)] if join else []
        environment = {**os.environ, "PYTHONPATH": str(program), "PYTHONSAFEPATH": "1"}
        with self.data.with_suffix(".log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "oncecast", *words], stderr=log, env=environment
            )

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(PATIENCE)
            self.process = None


def settled(nodes: list[Node]) -> GroupView:
    """Wait until all nodes are members and have a leader."""
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        try:
            with blocking.connect(",".join(each.address for each in nodes), timeout=2.0) as client:
                view = client.group()
        except OncecastError:
            continue
        reached = [each.node for each in view.members if each.reachable is not False]
        if view.quorum and sorted(reached) == sorted(each.address for each in nodes):
            return view
        time.sleep(0.1)
    raise SystemExit(f"the group did not settle within {PATIENCE:g} s")


def put(client: blocking.Client, first: int) -> int:
    for number in range(first, first + MESSAGES):
        client.put("upgrade", b"%d" % number)
    client.flush()
    return first + MESSAGES


def upgrade(old: Path, directory: Path) -> int:
    """Run the upgrade, and return the number of messages read back."""
    nodes = [Node(f"127.0.0.1:{port}", directory / f"node-{port}") for port in free_ports(3, 0)]
    addresses = [each.address for each in nodes]
    try:
        for count, node in enumerate(nodes):
            node.start(old, *addresses[:count])
        print(f"before   level {settled(nodes).level}")
        with blocking.connect(",".join(addresses), name="upgrade") as client:
            reader = client.subscribe("upgrade", "reader")
            count = put(client, 0)
            for node in nodes:
                node.stop()
                node.start(ROOT, *addresses)
                count = put(client, count)
                print(f"upgraded {node.address}, level {settled(nodes).level}")
            got = [reader.get(timeout=PATIENCE) for _ in range(count)]
            found = [each.value for each in got if each is not None]
        if found != [b"%d" % number for number in range(count)]:
            raise SystemExit("messages are missing, repeated or out of order")
        return count
    finally:
        for node in nodes:
            node.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--from", dest="revision", default="HEAD~1", help="git revision to upgrade from"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        old = Path(directory) / "old"
        export(arguments.revision, old)
        count = upgrade(old, Path(directory))
    print(f"after    {count} messages, each once and in order")


if __name__ == "__main__":
    main()
