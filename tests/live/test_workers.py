"""Workers in their own processes: each job has its effect once, although processes are killed."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from oncecast import blocking
from oncecast.wire.frames import SharedView
from tests.live.replicas import until
from tests.live.test_client_kill import ended
from tests.live.test_serve import PATIENCE, Process

pytestmark = pytest.mark.long

JOBS = 1500
WORKER = """
import signal
import sqlite3
import sys

# Until the worker runs, it has no jobs to drain.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", flush=True)

import oncecast

address, path = sys.argv[1:]
database = sqlite3.connect(path, isolation_level=None, timeout=30)
database.execute("pragma synchronous = off")
shared = oncecast.Shared(lease=2, deliveries_max=0, backoff_min=0, backoff_max=0.2)


@oncecast.worker("jobs", "workers", concurrency=4, prefetch=20, shared=shared)
async def store(job):
    database.execute("begin immediate")
    done = database.execute(
        "insert into effects values (?, ?) on conflict do nothing", (job.offset, job.token)
    )
    if done.rowcount:
        database.execute("insert into ledger values (?)", (job.value,))
    database.execute("commit")


store.run(address)
"""


class Workers:
    """Worker processes that share a database."""

    def __init__(self, address: str, path: Path) -> None:
        self._address, self._path = address, path
        self._processes: list[subprocess.Popen[bytes]] = []
        with closing(self._open()) as database:
            database.execute("pragma journal_mode = wal")
            database.execute("create table effects (offset integer primary key, token)")
            database.execute("create table ledger (value)")

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, isolation_level=None, timeout=PATIENCE)

    @property
    def ledger(self) -> list[int]:
        with closing(self._open()) as database:
            found = database.execute("select value from ledger").fetchall()
        return [int(value) for (value,) in found]

    def wait_for(self, count: int) -> None:
        until(f"{count} jobs are done", lambda: len(self.ledger) >= count or None)

    def start(self) -> None:
        command = [sys.executable, "-c", WORKER, self._address, str(self._path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"

    def kill_one(self) -> None:
        self._kill(self._processes.pop(0))

    def stop(self) -> None:
        """Drain all three workers, and check that each exits with status 0."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(PATIENCE) for process in self._processes] == [0] * 3

    def end(self) -> None:
        for process in self._processes:
            self._kill(process)

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.communicate(timeout=PATIENCE)


@contextmanager
def workers(address: str, path: Path) -> Iterator[Workers]:
    made = Workers(address, path)
    try:
        for _ in range(3):
            made.start()
        yield made
    finally:
        made.end()


def view(client: blocking.Client) -> SharedView:
    found = client.describe("jobs").subscriptions[0].shared
    assert found is not None
    return found


def test_each_job_has_its_effect_once_although_workers_and_the_node_are_killed(
    tmp_path: Path,
) -> None:
    """WRK-1 WRK-3 WRK-6"""
    data = str(tmp_path / "data")
    node = Process("--data", data)
    address = f"127.0.0.1:{node.port}"
    with blocking.connect(address) as client, workers(address, tmp_path / "effects") as staff:
        until("a worker has subscribed", lambda: subscribed(client))
        with ended(node):
            client.put_many("jobs", [b"%d" % n for n in range(JOBS)])
            staff.wait_for(JOBS // 10)
            staff.kill_one()
            staff.start()
            staff.wait_for(JOBS // 3)
        node = Process("--data", data, "--listen", address)
        with ended(node):
            staff.wait_for(JOBS // 2)
            staff.kill_one()
            staff.start()
            staff.wait_for(JOBS)
            until("nothing is left", lambda: None if lag(client) else True)
            staff.stop()
            assert sorted(staff.ledger) == list(range(JOBS))
            found = view(client)
            assert (found.leased, found.waiting, found.dead) == (0, 0, 0)
            client.close()


def lag(client: blocking.Client) -> int:
    return client.describe("jobs").subscriptions[0].lag


def subscribed(client: blocking.Client) -> bool | None:
    return any(view.name == "jobs" for view in client.topics()) or None
