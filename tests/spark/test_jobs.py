"""PIPE-4 PIPE-6: run the pipeline jobs as commands."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oncecast import Policy, blocking
from oncecast.cli.main import main
from oncecast.cli.spark.pipeline import last_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def kept(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let commands use the existing session without stopping it."""
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    yield
    monkeypatch.undo()


def test_audit_lists_only_the_injected_fault(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.jsonl"
    load = ["load", "--server", address, "--publishes", "2000", "--trace", str(trace)]
    assert main(load) == 0
    assert main(["pipeline", "run", "audit", str(trace)]) == 0
    assert "no faults in " in capsys.readouterr().out
    lost = without_one_delivery(trace)
    assert main(["pipeline", "run", "audit", "--json", str(trace)]) == 1
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["counts"] == {"lost": 1}
    names = ("topic", "subscription", "offset", "producer", "sequence")
    assert [found["faults"][0][name] for name in names] == [lost[name] for name in names]
    assert {each["file"] for each in found["faults"][0]["lines"]} == {str(trace)}


def test_audit_describes_damage_to_a_trace(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.jsonl"
    assert main(["load", "--server", address, "--publishes", "50", "--trace", str(trace)]) == 0
    trace.write_bytes(trace.read_bytes()[:-10])
    (tmp_path / "notes.txt").write_text("buy milk\n")
    capsys.readouterr()
    words = ["pipeline", "run", "audit", "--examples", "1"]
    assert main([*words, str(trace), str(tmp_path / "notes.txt")]) == 1
    out = capsys.readouterr().out
    assert "1 alien file: no line of the file belongs to a trace" in out
    assert f"  {tmp_path / 'notes.txt'}:1" in out
    assert "1 cut tail: the last lines of the file are missing" in out
    assert "1 invalid line: " in out
    assert "was not checked further because its files are incomplete" in out
    assert main([*words, "--killed", str(trace)]) == 0


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("Traceback\noncecast.x.Lost: it is gone; keep more\n\tat java", "it is gone; keep more"),
        (
            "An error occurred\n\tat java\nCaused by: Spark: [MALFORMED] record",
            "Spark: [MALFORMED]",
        ),
        ("[NO_SUCH] path\nmore", "[NO_SUCH] path"),
    ],
)
def test_long_spark_error_is_reduced_to_its_cause(text: str, cause: str) -> None:
    assert last_line(text).startswith(cause)


def without_one_delivery(trace: Path) -> dict[str, Any]:
    """Remove a delivery that happened only once, and renumber the lines.

    Return the removed delivery.
    """
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    came = [each for each in lines if each["kind"] == "delivery"]
    times = Counter((each["topic"], each["subscription"], each["offset"]) for each in came)
    lost: dict[str, Any] = next(
        each for each in came if times[each["topic"], each["subscription"], each["offset"]] == 1
    )
    lines.remove(lost)
    numbered = [{**each, "line": number} for number, each in enumerate(lines, 1)]
    trace.write_text("\n".join(map(json.dumps, numbered)))
    return lost


def test_archive_contains_each_message_once_and_resumes_where_it_stopped(
    spark: SparkSession,
    client: blocking.Client,
    address: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client.create_topic("archived", Policy(keep_all=True))
    where = str(tmp_path / "archive")
    command = ["pipeline", "run", "archive", "--server", address, "--topics", "archived", where]
    for count in (10, 5):
        client.put_many("archived", [b"x"] * count)
        assert main(command) == 0
        assert f"archived {count} messages" in capsys.readouterr().out
    rows = spark.read.parquet(where).orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(15))
    assert {row.topic for row in rows} == {"archived"}


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["archive", "--topics", "nowhere", "DIR"], 3, "topic 'nowhere'"),
        (["archive", "DIR"], 2, "use either --topics or --pattern"),
        (["audit", "nothing.jsonl"], 3, "file not found"),
    ],
)
def test_pipeline_command_reports_invalid_input(
    address: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    status: int,
    text: str,
) -> None:
    """SVC-7"""
    monkeypatch.setenv("ONCECAST_SERVER", address)
    words = [str(tmp_path / "archive") if word == "DIR" else word for word in words]
    assert main(["pipeline", "run", *words]) == status
    assert text in capsys.readouterr().err
