"""PIPE-2, live: a stream from topic to topic while its driver, executors and node are killed.

python -m tests.pipeline.kills [--kills 10] [--master 'local-cluster[2,1,1024]']
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from oncecast import Policy, blocking
from tests.live.test_serve import Process

PATIENCE = 180.0  # for whatever is waited for
MESSAGES = 100  # put at a time
CLUSTER = "local-cluster[2,1,1024]"


class Story:
    def __init__(self, directory: Path, master: str) -> None:
        self.directory, self.master = directory, master
        self.node = Process("--data", str(directory / "node"))
        self.port = self.node.port
        self.address = f"127.0.0.1:{self.port}"
        self.put = 0
        with self.client() as client:
            for topic in ("in", "out"):
                client.create_topic(topic, Policy(keep_all=True))

    def client(self) -> blocking.Client:
        return blocking.connect(self.address, timeout=PATIENCE)

    # -- what happens --

    def feed(self) -> None:
        with self.client() as client:
            for _ in range(MESSAGES):
                client.put_nowait("in", b"%d" % self.put, key=b"%d" % (self.put % 7))
                self.put += 1
            client.flush()

    @contextmanager
    def driver(self) -> Iterator[subprocess.Popen[bytes]]:
        words = ("-m", "tests.pipeline.driver", self.address, str(self.directory / "checkpoint"))
        with (self.directory / "driver.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *words, self.master],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                for each in session_of(process.pid):
                    kill(each)
                process.wait(PATIENCE)

    def wait_for_results(self, more: int = 1) -> None:
        """So many more than now."""
        with self.client() as client:
            before = client.describe("out").next
            end = time.monotonic() + PATIENCE
            while client.describe("out").next < before + more:
                assert time.monotonic() < end, f"nothing comes: see {self.directory}/driver.log"
                time.sleep(0.01)

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

    # -- what must be --

    def results(self) -> Counter[bytes]:
        with self.client() as client:
            return Counter(
                message.value for each in client.scan("out") for message in each.messages()
            )

    def finish(self) -> None:
        with self.driver(), self.client() as client:
            end = time.monotonic() + PATIENCE
            while client.describe("out").next < self.put:
                assert time.monotonic() < end, f"see {self.directory}/driver.log"
                time.sleep(0.05)
        assert self.results() == Counter(b"seen %d" % each for each in range(self.put))
        self.end_node(signal.SIGTERM)


def session_of(leader: int) -> list[int]:
    """All processes that a process has started in a session of its own, itself first."""
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
    with suppress(ProcessLookupError):  # it may have ended by itself
        os.kill(process, signal.SIGKILL)


def tell(directory: Path, kills: int, master: str, progress: Callable[[str], None]) -> int:
    """Returns how many results there are: each once."""
    story = Story(directory, master)
    for number in range(kills):
        story.feed()
        with story.driver() as driver:
            story.wait_for_results()  # so the sink has published, and Spark has not yet committed
            if number % 3 == 1:
                story.feed()
                story.kill_node()
                story.wait_for_results()
            elif number % 3 == 2 and master == CLUSTER:
                story.feed()
                story.kill_executor(driver.pid)
                story.wait_for_results()
            time.sleep(number * 0.037 % 0.5)  # at another moment each time
        progress(f"driver killed {number + 1} times, {story.put} messages put")
    story.feed()
    story.finish()
    return story.put


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--master", default=CLUSTER)
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="oncecast-kills-") as directory:
        count = tell(Path(directory), given.kills, given.master, print)
    print(f"{count} results, each once, in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
