"""Test the benchmark of workers that share a queue."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.peers.peer import Failed
from bench.workers.__main__ import BATCH, MEASURES, SYSTEMS
from bench.workers.crew import Go, Tally, Workshop, finished
from bench.workers.systems import Oncecast
from oncecast.network.network import run
from tools.check_docs import ROOT


def test_workers_are_compared_under_their_targets() -> None:
    assert [kind.name for kind in SYSTEMS] == ["oncecast", "Redis", "NATS", "RabbitMQ"]
    targets = {each.key: each.targets for each in MEASURES}
    assert targets == {"jobs": {"Redis": 5, "RabbitMQ": 10, "NATS": 10}, "batches": {"Redis": 10}}


def test_benchmark_page_names_every_worker_measure() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    for each in MEASURES:
        assert f"`{each.key}`" in page


def test_every_system_can_put_and_share_jobs() -> None:
    for kind in SYSTEMS:
        assert issubclass(kind, Workshop)
        assert not getattr(kind, "__abstractmethods__", None)


def test_tally_adds_the_jobs_of_all_processes(tmp_path: Path) -> None:
    file = tmp_path / "tally"
    file.touch()
    one, other = Tally(file, 2), Tally(file, 2)
    one.add(0, 3)
    other.add(1, 4)
    one.add(0, 1)
    assert (one.total, other.total) == (8, 8)


def test_worker_that_ends_fails_the_benchmark(tmp_path: Path) -> None:
    file = tmp_path / "tally"
    file.touch()
    tally = Tally(file, 1)
    process = subprocess.Popen([sys.executable, "-c", ""], text=True)
    process.wait()
    with pytest.raises(Failed, match="ended, after 0 of 5 jobs"):
        run(finished(tally, 5, [process]))
    tally.add(0, 6)
    with pytest.raises(Failed, match="acknowledged 6 jobs, expected 5"):
        run(finished(tally, 5, [process]))


@pytest.mark.long
def test_workers_in_processes_of_their_own_handle_all_jobs(tmp_path: Path) -> None:
    """WRK-1 WRK-6"""
    system = Oncecast()
    try:
        system.start(tmp_path)
        for batch in (1, BATCH):
            assert run(system.jobs([b"job"] * 250, batch, workers=2)) > 0
    finally:
        system.stop()


@pytest.mark.long
def test_worker_that_cannot_start_fails_the_benchmark() -> None:
    with pytest.raises(Failed, match="did not start"):
        run(Broken().jobs([b"job"], 1, workers=1))


class Broken(Oncecast):
    """A system whose workers cannot connect."""

    address = "127.0.0.1:1"

    async def fill(self, name: str, values: list[bytes]) -> None: ...
    async def clear(self, name: str) -> None: ...

    async def work(self, name: str, batch: int, number: int, go: Go, tally: Tally) -> None:
        sys.exit(1)
