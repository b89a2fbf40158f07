"""PIPE-4 PIPE-6: the pipeline jobs as commands."""

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
from oncecast.spark.jobs import read_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def kept(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let commands use the existing session, and not stop it."""
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    yield
    monkeypatch.undo()


def test_audit_of_a_run_lists_the_planted_fault_only(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.jsonl"
    load = ["load", "--server", address, "--publishes", "2000", "--trace", str(trace)]
    assert main(load) == 0
    assert main(["pipeline", "run", "audit", str(trace)]) == 0
    summary = "0 lost, 0 duplicated, 0 out of order, 0 stored twice, 0 stored out of order"
    assert summary in capsys.readouterr().out
    lost = without_one_delivery(trace)
    assert main(["pipeline", "run", "audit", "--json", str(trace)]) == 1
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["lost"], len(found["faults"])) == (1, 1)
    names = ("topic", "subscription", "offset", "producer", "sequence")
    assert [found["faults"][0][name] for name in names] == [lost[name] for name in names]


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
def test_long_error_of_spark_is_reduced_to_its_cause(text: str, cause: str) -> None:
    assert last_line(text).startswith(cause)


class Forgetful:
    """A query that keeps only its last two micro-batches."""

    def __init__(self, rows: list[int]) -> None:
        self._rows, self._done = rows, 0

    def awaitTermination(self, timeout: int) -> bool:  # noqa: N802  # the name in Spark
        self._done += 1
        return self._done == len(self._rows)

    @property
    def recentProgress(self) -> list[dict[str, int]]:  # noqa: N802
        numbered = list(enumerate(self._rows[: self._done]))
        return [{"batchId": batch, "numInputRows": rows} for batch, rows in numbered[-2:]]


def test_messages_of_all_micro_batches_are_counted_although_spark_drops_some() -> None:
    query: Any = Forgetful([3, 0, 4, 5])
    assert read_by(query) == 12


def without_one_delivery(trace: Path) -> dict[str, Any]:
    """Remove a delivery that happened only once, and return it."""
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    came = [each for each in lines if each["kind"] == "delivery"]
    times = Counter((each["topic"], each["subscription"], each["offset"]) for each in came)
    lost: dict[str, Any] = next(
        each for each in came if times[each["topic"], each["subscription"], each["offset"]] == 1
    )
    lines.remove(lost)
    trace.write_text("\n".join(map(json.dumps, lines)))
    return lost


def test_archive_has_each_message_once_and_resumes_where_it_was(
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
        (["archive", "--topics", "nowhere", "DIR"], 1, "topic 'nowhere'"),
        (["archive", "DIR"], 2, "use either --topics or --pattern"),
        (["audit", "nothing.jsonl"], 3, "file not found"),
    ],
)
def test_invalid_input_is_reported(
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
