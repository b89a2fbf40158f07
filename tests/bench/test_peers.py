"""Test the harness that compares oncecast with other systems."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from bench.group.__main__ import MEASURES as GROUP_MEASURES
from bench.group.__main__ import PEERS as GROUP_PEERS
from bench.peers import apart
from bench.peers.comparing import figures_of, present, running, unmeasured
from bench.peers.measures import MEASURES, Measure
from bench.peers.ours import Oncecast
from bench.peers.peer import Failed, Get, Peer, Put, Server
from bench.peers.results import Figures, Spread, latencies, percentiles, spread, table
from oncecast.network.network import run
from tests.test_workshop import PROJECT
from tools.check_docs import ROOT
from tools.lock_hashes import pins


class Fake(Peer):
    """A system that returns how often it was measured, and records each call."""

    name = "Fake"
    setup = "nothing"
    share = 0.5
    trace: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0.0

    def start(self, directory: Path) -> None:
        self.trace.append(f"start {self.name}")

    def stop(self) -> None:
        self.trace.append(f"stop {self.name}")

    def version(self) -> str:
        return "1"

    async def put(self, values: list[bytes]) -> float:
        self.trace.append(f"{self.name} {len(values)}")
        self.asked += 1
        return self.asked

    async def get(self, values: list[bytes]) -> float:
        raise AssertionError("only puts are measured here")

    async def fan_out(self, values: list[bytes], subscribers: int) -> float:
        raise AssertionError("only puts are measured here")

    def subscriber(self, name: str) -> AbstractAsyncContextManager[Get]:
        raise AssertionError("only puts are measured here")

    def publisher(self, name: str) -> AbstractAsyncContextManager[Put]:
        raise AssertionError("only puts are measured here")

    async def publish(self, values: list[bytes], publishers: int) -> float:
        raise AssertionError("only puts are measured here")


def fakes(*names: str) -> tuple[list[Peer], list[str]]:
    trace: list[str] = []
    peers: list[Peer] = [type(name, (Fake,), {"name": name, "trace": trace})() for name in names]
    return peers, trace


async def asked(peer: Peer, values: list[bytes]) -> float:
    return await peer.put(values)


def measure(less_is_better: bool = False, slices: int = 1) -> Measure:
    return Measure(
        "put",
        "put, 100 B",
        "msg/s",
        asked,
        1.0,
        less_is_better=less_is_better,
        slices=slices,
        targets={"Redis": 2},
    )


def test_spread_reports_the_median_and_the_extremes() -> None:
    assert spread([3.0, 1.0, 10.0, 2.0]) == Spread(2.5, 1.0, 10.0)


def test_ratio_compares_figures_from_the_same_round() -> None:
    figures = Figures(measure(), {"oncecast": [10.0, 90.0, 40.0], "Redis": [1.0, 10.0, 5.0]})
    assert figures.ratio("Redis") == Spread(9.0, 8.0, 10.0)
    assert figures.ratio("oncecast") is None


@pytest.mark.parametrize(
    ("less_is_better", "ratio", "reached"),
    [(False, 2.0, True), (False, 1.9, False), (True, 2.0, True), (True, 2.1, False)],
)
def test_target_is_a_floor_for_rates_and_a_ceiling_for_times(
    less_is_better: bool, ratio: float, reached: bool
) -> None:
    assert measure(less_is_better).reached("Redis", ratio) is reached
    assert measure(less_is_better).reached("NATS", ratio) is None


def test_table_shows_median_spread_ratio_and_verdict() -> None:
    figures = Figures(measure(), {"oncecast": [1500.0], "Redis": [1000.0], "NATS": [10.0]})
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table([figures]).splitlines()
    ]
    assert rows[2] == ["put, 100 B (msg/s)", "oncecast", *["1,500"] * 3, *[""] * 5]
    assert rows[3] == ["", "Redis", *["1,000"] * 3, *["1.50"] * 3, ">= 2", "SHORT"]
    assert rows[4] == ["", "NATS", *["10"] * 3, *["150.00"] * 3, "", ""]
    assert len({len(line) for line in table([figures]).splitlines()}) == 1


def test_json_contains_every_round_and_the_verdict() -> None:
    figures = Figures(measure(), {"oncecast": [6.0, 4.0], "Redis": [2.0, 2.0]})
    found = json.loads(json.dumps(figures.as_json()))
    assert found["oncecast"]["rounds"] == [6.0, 4.0]
    assert found["Redis"]["ratio"] == {"median": 2.5, "min": 2.0, "max": 3.0}
    assert (found["Redis"]["target"], found["Redis"]["ok"]) == (2, True)


@pytest.mark.long
def test_systems_take_turns_and_the_warm_up_does_not_count() -> None:
    peers, trace = fakes("a", "b")
    figures = figures_of(measure(), peers, messages=10_000, rounds=2)
    assert trace == ["a 1024", "b 1024", "a 5000", "b 5000", "a 5000", "b 5000"]
    assert figures.rounds == {"a": [2.0, 3.0], "b": [2.0, 3.0]}


@pytest.mark.long
def test_round_result_is_the_median_of_its_slices() -> None:
    peers, trace = fakes("a", "b")
    figures = figures_of(measure(slices=3), peers, messages=30_000, rounds=1)
    assert trace[6:] == ["a 5000", "b 5000"] * 3
    assert figures.rounds == {"a": [5.0], "b": [5.0]}  # the median of 4, 5 and 6


async def timed(peer: Peer, values: list[bytes]) -> list[float]:
    return [await peer.put(values), 100.0]


def test_latency_report_has_percentiles_over_all_rounds_and_their_conditions() -> None:
    peers, _ = fakes("a")
    latency = replace(measure(), of=timed, pause=0.25, alike=True)
    figures = figures_of(latency, peers, messages=100, rounds=2)
    assert figures.samples == {"a": [2.0, 100.0, 3.0, 100.0]}
    assert figures.rounds == {"a": [51.0, 51.5]}
    found = json.loads(json.dumps(figures.as_json()))
    assert found["a"]["percentiles"] == {"p50": 3.0, "p90": 100.0, "p99": 100.0, "p99.9": 100.0}
    assert found["conditions"].keys() == {"in flight", "pause us", "load average", "priority"}
    assert found["conditions"]["pause us"] == 250_000
    heading, row = latencies([figures, Figures(measure(), {"a": [1.0]})])
    assert "pause us 250000.0" in heading
    assert row == "    a: p50 3, p90 100, p99 100, p99.9 100 of 4 messages"


@pytest.mark.parametrize(("count", "last"), [(1, 1), (999, 999), (1000, 999), (2000, 1998)])
def test_percentile_uses_the_nearest_rank(count: int, last: int) -> None:
    assert percentiles([*range(count, 0, -1)])["p99.9"] == last


@pytest.mark.long
def test_publisher_and_subscriber_can_be_separate_processes(tmp_path: Path) -> None:
    peer = Oncecast()
    with running([peer], tmp_path):
        times = run(apart.trips(peer, [bytes(10)] * 3))
    assert len(times) == 3
    assert min(times) > 0


def test_uninstalled_systems_are_named_and_skipped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Lacking(Fake):
        name = "Lacking"
        programs = ("no-such-program",)
        modules = ("no_such_module", "json")

    found, missing = present([Fake, Lacking])
    assert [each.name for each in found] == ["Fake"]
    assert missing == {
        "Lacking": "the program no-such-program and the Python package no_such_module"
    }
    assert "skipping Lacking, because it needs the program no-such" in capsys.readouterr().err
    measures = [replace(MEASURES[0], title="jobs", targets={"Lacking": 5, "Fake": 2})]
    assert list(unmeasured(measures, missing)) == ["target not measured: jobs: 5 x Lacking"]


@pytest.mark.parametrize("error", [Failed("no"), KeyboardInterrupt()])
def test_all_servers_are_stopped_after_any_failure(error: BaseException, tmp_path: Path) -> None:
    peers, trace = fakes("a", "b")
    with pytest.raises(type(error)), running(peers, tmp_path):
        raise error
    assert trace == ["start a", "start b", "stop a", "stop b"]


def server(tmp_path: Path, program: str) -> Server:
    return Server([sys.executable, "-c", program], tmp_path / "log", None)


def test_server_that_exits_at_once_reports_its_last_output(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="the port is taken"):
        server(tmp_path, "raise SystemExit('the port is taken')").wait_until(lambda: False)


@pytest.mark.parametrize("signals", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN);"])
def test_server_is_stopped_with_its_child_processes(
    signals: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.peers.peer.END", 0.5)
    life = tmp_path / "life"
    os.mkfifo(life)
    child = f"import sys; file = open({str(life)!r}, 'w'); sys.stdin.read()"
    each = server(
        tmp_path,
        f"import signal, subprocess, sys; {signals}"
        f"subprocess.run([sys.executable, '-c', {child!r}], stdin=subprocess.PIPE)",
    )
    with life.open() as held:
        each.end()
        assert each.process.poll() is not None
        assert held.read() == ""  # end of file: no process has the writing end open


def test_terminated_benchmark_shuts_its_loop_down_cleanly() -> None:
    program = """if True:
        import asyncio, signal
        from bench.peers.peer import mind_signals
        from oncecast.network.network import run

        async def main():
            try:
                asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGTERM)
                await asyncio.Event().wait()
            finally:
                print("in order")

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for the background
        mind_signals()
        try:
            run(main())
        except KeyboardInterrupt:
            print("ended")
    """
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout == "in order\nended\n", done.stderr


def test_lock_file_pins_the_declared_peers() -> None:
    pinned = pins((ROOT / "requirements-bench.lock").read_text())
    for requirement in map(Requirement, PROJECT["project"]["optional-dependencies"]["bench"]):
        assert requirement.specifier.contains(pinned[requirement.name])


def test_benchmark_page_names_every_measure() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    for each in MEASURES:
        assert f"`{each.key}`" in page


def test_group_is_compared_with_one_node_and_its_targets() -> None:
    ours, one, nats = GROUP_PEERS
    assert (ours.name, one.name, nats.name) == ("oncecast", "one node", "NATS R3")
    targets = {each.key: (each.less_is_better, each.targets) for each in GROUP_MEASURES}
    assert targets["put"] == (False, {"one node": 0.5})
    assert targets["latency"] == (True, {"one node": 2.0})
