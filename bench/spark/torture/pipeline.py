"""Run a query that is killed and restarted repeatedly, and check its results."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from bench.peers.peer import Failed
from bench.spark.torture.driver import ENDED
from bench.spark.torture.processes import (
    PATIENCE,
    Nodes,
    Standalone,
    executors,
    send,
    session_of,
    wait,
)
from oncecast import Policy

AT_ONCE = 0.002  # seconds between two checks for a short event
MESSAGES = 200  # number of messages per put
LOCAL = "local-cluster[2,1,1024]"
OURS = re.compile(r"oncecast\.errors\.(\w+): ")
SPARKS = re.compile(r"\[([A-Z][A-Z_.]+[A-Z])\]")
# Errors after which a restart does not help. Their messages contain a remedy.
CLEAR = {"TakenOver", "OldNumber", "OtherContent", "CONCURRENT_STREAM_LOG_UPDATE"}


class Findings(NamedTuple):
    put: int
    results: int
    lost: int
    doubled: int
    examples: list[str]


def compared(put: int, results: list[bytes]) -> Findings:
    """Compare the results with the numbers of the stored messages."""
    found, expected = Counter(results), Counter(b"seen %d" % each for each in range(put))
    lost, doubled = expected - found, found - expected
    examples = [each.decode(errors="replace") for each in [*lost, *doubled][:5]]
    return Findings(put, len(results), lost.total(), doubled.total(), examples)


class Driver:
    """The process of a query, with all its children in a separate session."""

    def __init__(self, module: str, words: list[str], log: Path, env: Mapping[str, str]) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=env,
            )

    @property
    def ended(self) -> str | None:
        """Return why the query has ended, "" if it is complete, or None if it is still running."""
        status = self.process.poll()
        if not status:
            return None if status is None else ""
        text = self.log.read_text(errors="replace").rpartition(f"\n{ENDED}")[2]
        found = OURS.findall(text) or SPARKS.findall(text)  # the last match is the cause
        return str(found[-1]) if found else f"status {status}"

    def signal(self, number: signal.Signals) -> None:
        for each in session_of(self.process.pid):
            send(each, number)

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait(PATIENCE)


class Pipeline:
    """A query from topic `NAME.in` to topic `NAME.out`. Drivers are restarted after failures."""

    def __init__(
        self,
        name: str,
        directory: Path,
        nodes: Nodes,
        cluster: Standalone | None = None,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        self.name, self.nodes, self.cluster, self._env = name, nodes, cluster, env
        self.directory = directory / name
        self.checkpoint = self.directory / "checkpoint"
        self.put = 0
        self.between = 0  # number of kills between the sink's publish and Spark's commit
        self.ended: Counter[str] = Counter()  # reason -> number of queries that ended on their own
        self.driver: Driver | None = None
        self._started: list[Driver] = []
        (self.directory / "events").mkdir(parents=True)
        with nodes.client() as client:
            for topic in (self.source, self.target):
                client.create_topic(topic, Policy(keep_all=True))

    @property
    def source(self) -> str:
        return f"{self.name}.in"

    @property
    def target(self) -> str:
        return f"{self.name}.out"

    def feed(self, count: int = MESSAGES) -> None:
        with self.nodes.client() as client:
            for _ in range(count):
                client.put_nowait(self.source, b"%d" % self.put, key=b"%d" % (self.put % 7))
                self.put += 1
            client.flush()

    # -- drivers --

    def launch(self, checkpoint: Path, *, once: bool = False) -> Driver:
        """Start a driver that the pipeline does not restart."""
        master = self.cluster.url if self.cluster else LOCAL
        words = [self.name, self.nodes.address, str(checkpoint), master]
        words += ["--events", str(self.directory / "events"), *(["--once"] if once else [])]
        log = self.directory / f"driver{len(self._started)}.log"
        self._started.append(Driver("bench.spark.torture.driver", words, log, self._env))
        return self._started[-1]

    def start(self) -> None:
        self.driver = self.launch(self.checkpoint)

    def kill(self) -> None:
        """Kill the driver, and count whether a batch was published and not committed."""
        assert self.driver is not None
        self.driver.end()
        self.driver = None
        self.between += self.results_end() > self.committed()

    def kill_executor(self) -> None:
        assert self.driver is not None
        sessions = self.cluster.sessions if self.cluster else [self.driver.process.pid]
        self.wait("executors", lambda: bool(executors(sessions)))
        for each in executors(sessions)[:1]:
            send(each)

    def close(self) -> None:
        for each in self._started:
            each.end()

    def wait(self, what: str, reached: Callable[[], bool], look_every: float = 0.1) -> None:
        """Wait for an event, and restart the driver if its query ends with a temporary error."""

        def look() -> bool:
            if self.driver is not None and self.driver.ended is not None:
                self.note(self.driver)
                self.start()
            return reached()

        wait(f"{what} (see {self.directory})", look, look_every)

    def note(self, driver: Driver) -> None:
        """Count why a driver ended. Raise Failed if a restart does not help."""
        reason = driver.ended or "complete"
        self.ended[reason] += 1
        if reason in CLEAR:
            raise Failed(f"the query of {self.name} ended with {reason}; see {driver.log}")

    # -- moments --

    def wait_for_results(self, look_every: float = 0.1) -> None:
        """Wait for more results than there are now."""
        before = self.results_end()
        with self.nodes.client() as client:
            self.wait("results", lambda: client.describe(self.target).next > before, look_every)

    def wait_for(self, moment: str) -> None:
        """Wait for a step of the next micro-batch, so that the caller can act right after it."""
        if moment == "published":
            self.wait_for_results(AT_ONCE)
        elif moment in ("planned", "committed"):
            kind = "offsets" if moment == "planned" else "commits"
            before = len(self.batches(kind))
            self.wait(f"a {moment} batch", lambda: len(self.batches(kind)) > before, AT_ONCE)
        else:
            self.wait_for_results()
            time.sleep(self.put * 0.037 % 0.7)

    def batches(self, kind: str) -> list[Path]:
        """Return Spark's checkpoint files: `offsets` before a micro-batch, `commits` after it."""
        files = (self.checkpoint / kind).glob("[0-9]*")
        return sorted((each for each in files if each.name.isdigit()), key=lambda at: int(at.name))

    def results_end(self) -> int:
        with self.nodes.client() as client:
            return client.describe(self.target).next

    def committed(self) -> int:
        """Return the number of messages that Spark has committed; each has one result."""
        done = self.batches("commits")
        if not done:
            return 0
        last = self.checkpoint / "offsets" / done[-1].name
        return int(json.loads(last.read_text().splitlines()[-1])[self.source]["next"])

    # -- results --

    def finish(self) -> Findings:
        """Run the query until all messages are read. Return the lost and duplicated results."""
        if self.driver is not None:
            self.driver.end()
        self.driver = self.launch(self.checkpoint, once=True)

        def complete() -> bool:
            assert self.driver is not None
            if self.driver.ended:
                self.note(self.driver)
                self.driver = self.launch(self.checkpoint, once=True)
            return self.driver.ended == ""

        wait(f"the rest of the results (see {self.directory})", complete)
        self.driver = None
        return self.check()

    def check(self) -> Findings:
        with self.nodes.client() as client:
            scanned = client.scan(self.target)
            found = [message.value for each in scanned for message in each.messages()]
        return compared(self.put, found)

    def speculated(self) -> int:
        """Return the number of speculative task attempts that Spark recorded."""
        files = (self.directory / "events").iterdir()
        lines = (line for each in files for line in each.read_text(errors="replace").splitlines())
        ends = (line for line in lines if line.startswith('{"Event":"SparkListenerTaskEnd"'))
        return sum('"Speculative":true' in line for line in ends)
