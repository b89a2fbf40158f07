"""PIPE-2, live: a stream from topic to topic while its driver, executors and node are killed.

python -m tests.spark.kills [--kills 10] [--master 'local-cluster[2,1,1024]']
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from oncecast import Policy, blocking
from tests.live.test_serve import Process

PATIENCE = 300.0  # seconds to wait for any event
AT_ONCE = 0.002  # seconds between two checks for a short event
MESSAGES = 100  # put at a time
CLUSTER = "local-cluster[2,1,1024]"
MOMENTS = ("published", "written down", "done", "any")


class KillRun:
    """A node, a query that is restarted again and again, and its expected results."""

    def __init__(self, directory: Path, master: str) -> None:
        self.directory, self.master = directory, master
        self.node = Process("--data", str(directory / "node"))
        self.address = f"127.0.0.1:{self.node.port}"
        self.put = 0
        self.between = 0  # kills between the sink's publish and Spark's commit
        with self.client() as client:
            for topic in ("in", "out"):
                client.create_topic(topic, Policy(keep_all=True))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_node(signal.SIGTERM)

    def client(self) -> blocking.Client:
        return blocking.connect(self.address, timeout=PATIENCE)

    # -- actions --

    def feed(self) -> None:
        with self.client() as client:
            for _ in range(MESSAGES):
                client.put_nowait("in", b"%d" % self.put, key=b"%d" % (self.put % 7))
                self.put += 1
            client.flush()

    @contextmanager
    def driver(self, env: Mapping[str, str] = os.environ) -> Iterator[subprocess.Popen[bytes]]:
        """Run a process, and kill it with all its children at the end."""
        words = ("-m", "tests.spark.driver", self.address, self.checkpoint)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *words, self.master],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=env,
            )
            try:
                yield process
            finally:
                for each in session_of(process.pid):
                    kill(each)
                process.wait(PATIENCE)
                self.between += self.results_end() > self.committed()

    @property
    def checkpoint(self) -> str:
        return str(self.directory / "checkpoint")

    @property
    def log(self) -> Path:
        return self.directory / "driver.log"

    def kill_node(self) -> None:
        self.end_node(signal.SIGKILL)
        self.node = Process("--data", str(self.directory / "node"), "--listen", self.address)

    def end_node(self, number: signal.Signals) -> None:
        self.node.end(number)
        assert self.node.process.stderr is not None
        self.node.process.stderr.close()

    def kill_executor(self, driver: int) -> None:
        found = [each for each in session_of(driver) if "ExecutorBackend" in command(each)]
        kill(found[0])

    # -- waiting --

    def wait(self, until: Callable[[], bool], look_every: float = 0.1) -> None:
        end = time.monotonic() + PATIENCE
        while not until():
            assert time.monotonic() < end, f"nothing comes: see {self.log}"
            time.sleep(look_every)

    def wait_for_results(self, look_every: float = 0.1) -> None:
        """Wait for more results than there are now."""
        before = self.results_end()
        with self.client() as client:
            self.wait(lambda: client.describe("out").next > before, look_every)

    def wait_for(self, moment: str) -> None:
        """Wait for a step of the next micro-batch, so that the caller can act right after it."""
        if moment == "published":
            self.wait_for_results(AT_ONCE)
        elif moment in ("written down", "done"):
            kind = "offsets" if moment == "written down" else "commits"
            before = len(self.batches(kind))
            self.wait(lambda: len(self.batches(kind)) > before, AT_ONCE)
        else:
            self.wait_for_results()
            self.feed()
            time.sleep(self.put * 0.037 % 0.7)

    def batches(self, kind: str) -> list[Path]:
        """Return Spark's checkpoint files: `offsets` before a micro-batch, `commits` after it."""
        files = Path(self.checkpoint, kind).glob("[0-9]*")
        return sorted((each for each in files if each.name.isdigit()), key=lambda at: int(at.name))

    # -- state --

    def results_end(self) -> int:
        with self.client() as client:
            return client.describe("out").next

    def committed(self) -> int:
        """Return the number of messages that Spark has committed; each has one result."""
        done = self.batches("commits")
        if not done:
            return 0
        last = Path(self.checkpoint, "offsets", done[-1].name)
        return int(json.loads(last.read_text().splitlines()[-1])["in"]["next"])

    def results(self) -> Counter[bytes]:
        with self.client() as client:
            return Counter(
                message.value for each in client.scan("out") for message in each.messages()
            )

    def finish(self) -> None:
        """Restart the query and check that each message has one result at the end."""
        with self.driver():
            self.wait(lambda: self.results_end() >= self.put)
        self.check()

    def check(self) -> None:
        assert self.results() == Counter(b"seen %d" % each for each in range(self.put))


def session_of(leader: int) -> list[int]:
    """Return a process and all processes in its session, itself first."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                fields = (each / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append(int(each.name))
    return sorted(found)


def command(process: int) -> str:
    return (Path("/proc") / str(process) / "cmdline").read_bytes().decode(errors="replace")


def kill(process: int) -> None:
    with suppress(ProcessLookupError):  # it may already have exited
        os.kill(process, signal.SIGKILL)


def kill_repeatedly(run: KillRun, kills: int, progress: Callable[[str], None]) -> None:
    """Kill processes at various moments; at the end each result must exist once."""
    for number, moment in zip(range(kills), itertools.cycle(MOMENTS)):
        run.feed()
        with run.driver() as driver:
            text = f"driver at {moment!r}"
            if number % 3 == 1:
                run.wait_for_results()
                run.kill_node()
                run.feed()
                text = f"node, {text}"
            elif number % 3 == 2 and run.master == CLUSTER:
                run.wait_for_results()
                run.kill_executor(driver.pid)
                run.feed()
                text = f"executor, {text}"
            run.wait_for(moment)
        progress(f"killed: {text}; {number + 1} of {kills}, {run.put} messages put")
    run.feed()
    run.finish()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--master", default=CLUSTER)
    given = parser.parse_args()
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="oncecast-kills-") as directory,
        KillRun(Path(directory), given.master) as run,
    ):
        kill_repeatedly(run, given.kills, lambda text: print(text, flush=True))
    text = f"{run.put} results, each once; {run.between} kills between publish and commit"
    print(f"{text}; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
