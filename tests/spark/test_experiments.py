"""EXP-1 EXP-2 EXP-3 EXP-4 EXP-5 EXP-6 EXP-7: small runs give traces, tables, figures and a page."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oncecast.cli.main import main
from oncecast.lab.experiments import failures as exp_failures
from oncecast.lab.experiments import paxos as exp_paxos
from oncecast.lab.experiments import publish as exp_publish
from oncecast.lab.experiments import ring as exp_ring
from oncecast.lab.experiments.catalogue import rows
from oncecast.lab.experiments.runs import Row, Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

PNG = b"\x89PNG\r\n"
NAMES = ["scribe-messages", "convergence", "chord-messages", "load-balance", "failures", "paxos"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exp_publish, "SOURCE_PUBLISHES", (2, 4))
    monkeypatch.setattr(exp_publish, "SEEDS", 1)
    monkeypatch.setattr(exp_failures, "SHARES", (0.0, 0.3))
    monkeypatch.setattr(exp_failures, "SIZES", {20: 1})
    monkeypatch.setattr(exp_ring, "REPAIR_SIZES", {30: 1})
    monkeypatch.setattr(exp_ring, "REPAIR_SHARES", (0.3,))
    monkeypatch.setattr(exp_ring, "OWNERSHIP_SEEDS", dict.fromkeys(exp_ring.OWNERSHIP_SEEDS, 20))
    monkeypatch.setattr(exp_paxos, "STORM_SIZES", {3: 1})
    monkeypatch.setattr(exp_paxos, "ELECTION_SIZES", {3: 1})


@pytest.mark.usefixtures("small")
def test_experiments_write_traces_figures_and_a_page_and_pass_their_checks(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    words = ["experiment", "run", "all", "--nodes", "30", "--out", str(tmp_path), "--json"]
    assert main(words) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["name"] for each in found] == NAMES
    assert all(each["holds"] for each in found)
    assert all(each["answer"] for each in found if each["name"] != "paxos")
    for each in found:
        for figure in each["figures"]:
            assert (tmp_path / figure).read_bytes().startswith(PNG)
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/png;base64,") == sum(len(each["figures"]) for each in found)
    assert {"scenario", "kind", "seed"} <= set(spark.read.parquet(str(tmp_path / "traces")).columns)
    for directory in (tmp_path / "traces").glob("scenario=[!p]*"):
        shutil.rmtree(directory)
    shutil.rmtree(tmp_path / "traces" / "scenario=publish")
    assert main(["pipeline", "run", "experiments", str(tmp_path), "--json"]) == 0
    (again,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (
        again == found[NAMES.index("load-balance")]
    )  # only this experiment still has all its traces


def mutated(trace: list[Row], kind: str, change: Any) -> list[Row]:
    """Return the rows with one row of this kind changed by `change`."""
    at = [number for number, row in enumerate(trace) if row[1] == kind]
    middle = at[len(at) // 2]
    return [*trace[:middle], *change(trace[middle]), *trace[middle + 1 :]]


def frame(spark: SparkSession, run: Run, trace: list[Row]) -> Any:
    import pyarrow as pa  # type: ignore[import-untyped]

    from oncecast.spark.experiments.finding import TRACE
    from oncecast.spark.experiments.running import batch

    rows = pa.Table.from_batches([batch(run, 0, trace)]).to_pylist()
    return spark.createDataFrame(rows, TRACE)


def test_lost_and_duplicated_deliveries_show_in_the_tables(spark: SparkSession) -> None:
    from oncecast.spark.experiments.publishing import outcomes

    run = Run(exp_publish.SCENARIO, "scribe", 10, 20)
    trace = rows(run)
    for change, expected in (
        (lambda row: [row], (True, 0)),
        (lambda row: [], (False, 0)),
        (lambda row: [row, row], (True, 1)),
    ):
        (found,) = outcomes(frame(spark, run, mutated(trace, "delivery", change))).collect()
        assert (found.reliability == 1.0, found.again) == expected


def test_replica_with_a_different_order_is_found_in_the_trace(spark: SparkSession) -> None:
    from oncecast.spark.experiments.replicas import disagreements, disorder

    run = Run(exp_paxos.ELECTION, "paxos", 3)
    trace = rows(run)
    assert trace[-1][1] == "held"
    other = mutated(trace, "decided", lambda row: [(*row[:3], "another", row[4])])
    twice = mutated(trace, "decided", lambda row: [row, row])
    for changed, expected in ((trace, (0, 0)), (other, (1, 0)), (twice, (0, 1))):
        seen = frame(spark, run, changed)
        assert (disagreements(seen).count(), disorder(seen).count()) == expected


def test_violation_in_a_run_becomes_a_row_in_its_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from oncecast.lab.experiments import catalogue as exp_catalogue

    def breaks(run: Run, note: Any) -> None:
        raise AssertionError("n1 forgot")

    monkeypatch.setitem(exp_catalogue.SCENARIOS, exp_publish.SCENARIO, breaks)
    run = Run(exp_publish.SCENARIO, "scribe", 10, 20)
    assert rows(run) == [(0.0, "violation", "", "AssertionError: n1 forgot", 0.0)]


def test_tasks_contain_every_run_exactly_once() -> None:
    from oncecast.lab.experiments.runs import Scale
    from oncecast.spark.experiments.catalogue import EXPERIMENTS
    from oncecast.spark.experiments.running import pieces

    runs = [run for each in EXPERIMENTS.values() for run in each.runs(Scale())]
    made = pieces(runs)
    assert len(made) < 100
    assert sorted(map(repr, (run for piece in made for run in piece))) == sorted(
        map(repr, dict.fromkeys(runs))
    )
    assert max(run.nodes for run in runs) == 10_000


def test_sizes_measured_for_only_one_system_are_not_compared() -> None:
    from oncecast.spark.experiments.failing import comparison_table

    names = [
        "messages",
        "reliability",
        "network",
        "p50",
        "p99",
        "load",
        "busiest",
        "uneven",
        "window",
        "hops",
    ]
    same = dict.fromkeys(names, 1.0)
    sizes = (("scribe", 20, 2.0), ("plumtree", 20, 3.0), ("scribe", 3000, 9.0))
    figures = [
        {**same, "system": system, "nodes": nodes, "copies": copies}
        for system, nodes, copies in sizes
    ]
    for changed, holds in ((3.0, True), (2.0, False)):
        figures[1]["copies"] = changed
        table = comparison_table(figures)
        assert ([each.holds for each in table.must], len(table.rows)) == ([holds], 3)


def test_ring_must_recover_after_up_to_half_of_its_nodes_fail() -> None:
    from oncecast.spark.experiments.failing import repair_table

    for nodes, failed, holds in ((30, 0.5, False), (1000, 0.5, False), (1000, 0.7, True)):
        curve = [
            {"nodes": nodes, "share": failed, "kind": kind, "time": time, "right": 0.9}
            for kind in ("successors", "fingers")
            for time in (0.0, 0.5)
        ]
        assert [each.holds for each in repair_table(curve).must] == [holds]


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["nothing"], 3, "experiment 'nothing' does not exist; choose one of scribe-messages"),
        (["all", "--nodes", "10"], 2, "use 30 or more"),
    ],
)
def test_invalid_experiment_is_rejected(
    words: list[str], status: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["experiment", "run", *words]) == status
    assert text in capsys.readouterr().err


def test_missing_package_is_reported_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from oncecast.cli.spark import pipeline

    monkeypatch.setattr(pipeline, "find_spec", lambda name: None)
    assert main(["experiment", "run", "all"]) == 1
    assert 'pyspark is not installed; run pip install "oncecast[spark]"' in capsys.readouterr().err


def test_experiment_list_works_without_spark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for name in [each for each in sys.modules if each.startswith("oncecast.spark")]:
        monkeypatch.delitem(sys.modules, name)
    assert main(["experiment", "list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == NAMES
