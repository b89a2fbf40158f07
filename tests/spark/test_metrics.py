"""PIPE-4: show throughput, latency, lag and load of traces in tables and a figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oncecast.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

Line = dict[str, Any]
PNG = b"\x89PNG\r\n"


def line(time: float, kind: str, **fields: Any) -> Line:
    return {"time": 1000.0 + time, "kind": kind, "client": "c", "topic": "t", **fields}


def message(number: int) -> Line:
    return {"producer": "p", "sequence": number}


def trace_lines() -> list[Line]:
    """Return a trace of four messages, stored after 1, 2, 3 and 4 ms and delivered 100 ms later.
    The last one is delivered twice. The reader falls behind for a second and catches up.
    """
    lines = [line(0.0, "subscribe", subscription="s", offset=0)]
    for number in range(4):
        at = 0.1 * number
        stored = at + 0.001 * (number + 1)
        came = stored + 0.1 if number < 2 else 1.51 + at
        stored_at = {**message(number), "offset": number}
        got = {**stored_at, "subscription": "s", "redelivered": False}
        lines += [
            line(at, "put", **message(number)),
            line(stored, "stored", **stored_at),
            line(came, "delivery", **got),
        ]
    again = {**message(3), "offset": 3, "subscription": "s", "redelivered": True}
    lines += [line(2.5, "delivery", **again), line(2.6, "ack", subscription="s", offset=3)]
    return [{"line": number, **each} for number, each in enumerate(lines)]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, trace_lines())))
    return path


@pytest.fixture(autouse=True)
def _kept(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda self: None)


def test_tables_show_rates_latencies_lag_and_load(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = tmp_path / "out"
    assert main(["pipeline", "run", "metrics", str(trace), "--out", str(where), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    tables = {table["title"]: table["rows"] for table in found["tables"]}
    assert [row[:2] for row in tables["throughput"]] == [
        ["stored", 4],
        ["delivered", 4],
        ["redelivered", 1],
    ]
    (stored, delivered) = tables["latency, milliseconds"]
    assert stored[:2] == ["put to stored", 4]
    assert (round(stored[2]), round(stored[-1])) == (2, 4)
    assert delivered[:2] == ["put to delivery", 4]
    assert round(delivered[-1]) == 1510
    # Steps of 0.05 s: lag 1 in the first six, 2 in the next 28, 1 in two more, then 0.
    assert [row[2:] for row in tables["lag, messages"]] == [[pytest.approx(64 / 51), 2, 0]]
    assert tables["load per client"] == [["c", 4, 5, 1, "100.0%"]]
    assert (where / "figures" / "metrics.png").read_bytes().startswith(PNG)
    page = (where / "report.html").read_text()
    assert "data:image/png;base64," in page
    assert "http" not in page


def test_trace_with_nodes_shows_their_load_and_events(spark: SparkSession) -> None:
    from oncecast.spark.metrics import TRACE, load, node_events

    blank = dict.fromkeys(each.split()[0] for each in TRACE.split(", "))
    kinds = [("put", "a"), ("put", "a"), ("put", "b"), ("killed", "a")]
    rows = [
        {**blank, "time": 7.0 + number, "kind": kind, "client": "c", "node": node}
        for number, (kind, node) in enumerate(kinds)
    ]
    trace = spark.createDataFrame(rows, TRACE)
    found = load(trace).collect()
    assert [(row.name, row.is_node, row.puts) for row in found] == [("a", True, 2), ("b", True, 1)]
    assert [(row.since, row.kind, row.node) for row in node_events(trace).collect()] == [
        (3.0, "killed", "a")
    ]


@pytest.mark.parametrize("width", [0.001, 0.005, 0.1, 0.2, 0.5, 2.0])
def test_gaps_between_time_steps_are_filled_with_rows(width: float) -> None:
    from oncecast.spark.metrics import RATES, without_gaps

    for last in range(101):
        rates = [
            {"at": step * width, "width": width, **dict.fromkeys(RATES, 1.0)} for step in {0, last}
        ]
        found = without_gaps(rates)
        assert [each["at"] for each in found] == [step * width for step in range(last + 1)]
        assert found[-1]["stored"] == 1.0


def test_missing_trace_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "run", "metrics", "nothing.jsonl"]) == 3
    assert (
        "nothing.jsonl: file not found; create a trace with `oncecast load --trace`"
        in capsys.readouterr().err
    )
