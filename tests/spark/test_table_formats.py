"""PIPE-4: Delta Lake and Iceberg archives contain each message once. These tests need no Spark."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable
from pyiceberg.expressions import EqualTo, LessThan
from pyiceberg.table import StaticTable

from oncecast import errors
from oncecast.cli.main import main
from oncecast.client.starts import EARLIEST, from_offset
from oncecast.spark.archive import iceberg_format, opening
from oncecast.spark.archive.iceberg_catalog import DirectoryCatalog
from oncecast.spark.archive.job import archive, here
from oncecast.spark.archive.log import Log
from oncecast.spark.archive.opening import open_table
from oncecast.spark.archive.values import File
from oncecast.wire.batch_arrow import SCHEMA
from tests.spark.archive_kills import Topics, every, held, run, seen

formats = pytest.mark.parametrize("kind", ["delta", "iceberg"])
DAY = 86_400_000_000


@formats
def test_second_run_adds_only_new_messages(tmp_path: Path, kind: str) -> None:
    assert run(open_table(tmp_path, kind), Topics(a=10, b=3), rows_max=5) == 13
    assert run(open_table(tmp_path), Topics(a=10, b=3)) == 0
    topics = Topics(a=12, b=3, c=1)
    assert run(open_table(tmp_path, kind), topics) == 3
    assert held(seen(kind, tmp_path)) == held(open_table(tmp_path).files()) == every(topics)


def test_delta_reader_sees_all_columns_and_skips_files_by_day_and_offset(tmp_path: Path) -> None:
    run(open_table(tmp_path, "delta"), Topics(a=10, b=10))
    table = DeltaTable(str(tmp_path))
    assert table.metadata().partition_columns == ["date"]
    found = table.to_pyarrow_table(filters=[("date", "=", date(1970, 1, 2))])
    assert set(found.schema.names) == {*SCHEMA.names, "date"}
    assert set(found["date"].to_pylist()) == {date(1970, 1, 2)}
    assert sorted(found["value"].to_pylist()) == sorted([b"4", b"5", b"6", b"7"] * 2)
    added = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert {each["min.topic"] for each in added} <= {"a", "b"}
    assert sum(each["num_records"] for each in added) == 20
    assert max(each["max.offset"] for each in added) == 9


def test_iceberg_reader_sees_all_columns_and_skips_files_by_day(tmp_path: Path) -> None:
    run(open_table(tmp_path, "iceberg"), Topics(a=10, b=10))
    table = StaticTable.from_metadata(str(tmp_path))
    assert [field.name for field in table.spec().fields] == ["date"]
    second = table.scan(EqualTo("timestamp", "1970-01-02T00:00:00+00:00"))
    assert len(list(second.plan_files())) < len(list(table.scan().plan_files()))
    found = second.to_arrow()
    assert found.schema.names == SCHEMA.names
    assert sorted(found["value"].to_pylist()) == sorted([b"4", b"5", b"6", b"7"] * 2)
    assert table.current_snapshot().summary["oncecast.commit"] == "1"


@formats
def test_backfill_adds_missing_earlier_messages(tmp_path: Path, kind: str) -> None:
    table, topics = open_table(tmp_path, kind), Topics(a=10)
    assert run(table, topics, start=from_offset(7)) == 3
    assert run(table, topics, start=EARLIEST) == 7
    assert run(table, topics, start=EARLIEST) == 0
    assert held(seen(kind, tmp_path)) == every(topics)


@formats
def test_slower_of_two_concurrent_runs_plans_again(tmp_path: Path, kind: str) -> None:
    table, topics = open_table(tmp_path, kind), Topics(a=10)
    node: Any = topics
    added: list[int] = []

    def overtaken(pieces: Sequence[Any], work: Any) -> list[File]:
        files = here(pieces, work)
        if not added:
            topics.counts["a"] = 12
            added.append(run(open_table(tmp_path, kind), topics, rows_max=6))
        return files

    slower = archive(node, lambda client, archived: topics.views(), table, overtaken)
    assert (added, slower) == ([12], 0)
    assert held(seen(kind, tmp_path)) == every(Topics(a=12))


@formats
def test_commit_published_by_two_processes_is_added_once(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both processes load the table before one of them adds the commit."""
    topics = Topics(a=10)
    run(open_table(tmp_path, kind), topics)
    topics.counts["a"] = 14
    shown: Any = opening.FORMATS[kind]
    opened = shown._opened
    others: list[bool] = []

    def loaded(self: Any) -> Any:
        table = opened(self)
        last = Log(tmp_path).last()
        if last is not None and last[0] == 2 and not others:
            others.append(True)
            assert shown(Log(tmp_path)).publish(*last) == []
        return table

    with monkeypatch.context() as patched:
        patched.setattr(shown, "_opened", loaded)
        assert run(open_table(tmp_path, kind), topics) == 4
    assert others
    assert held(seen(kind, tmp_path)) == every(topics)


@formats
def test_compaction_leaves_one_file_for_each_day(tmp_path: Path, kind: str) -> None:
    table, topics = open_table(tmp_path, kind), Topics(a=12, b=12)
    run(table, topics, rows_max=4)
    before = seen(kind, tmp_path)
    assert table.compact(here) == len(before) == 6
    assert table.compact(here) == 0
    assert len(seen(kind, tmp_path)) == 3
    assert held(seen(kind, tmp_path)) == every(topics)
    assert held(before) == every(topics), "a reader of the version before can still read"
    topics.counts["a"] = 20
    assert run(table, topics) == 8
    assert held(seen(kind, tmp_path)) == every(topics)


def test_delta_archive_keeps_compactions_by_other_programs(tmp_path: Path) -> None:
    table, topics = open_table(tmp_path, "delta"), Topics(a=8)
    run(table, topics, rows_max=2)

    def overtaken(pieces: Sequence[Any], work: Any) -> list[File]:
        files = here(pieces, work)
        DeltaTable(str(tmp_path)).optimize.compact()
        return files

    table.compact(overtaken)
    assert held(seen("delta", tmp_path)) == every(topics)
    assert len(list(tmp_path.glob("date=*/*.parquet"))) == 6  # our compaction has added no file
    topics.counts["a"] = 9
    assert run(table, topics) == 1
    assert held(seen("delta", tmp_path)) == every(topics)


def test_iceberg_archive_keeps_deletions_by_other_programs(tmp_path: Path) -> None:
    table, topics = open_table(tmp_path, "iceberg"), Topics(a=8)
    run(table, topics, rows_max=2)

    def overtaken(pieces: Sequence[Any], work: Any) -> list[File]:
        files = here(pieces, work)
        other = DirectoryCatalog(tmp_path.resolve()).load_table()
        other.delete(LessThan("offset", 2))  # deletes all messages in one file
        return files

    table.compact(overtaken)
    found = StaticTable.from_metadata(str(tmp_path)).scan().to_arrow()
    assert sorted(found["offset"].to_pylist()) == list(range(2, 8))
    topics.counts["a"] = 9
    assert run(table, topics) == 1


def test_iceberg_removes_replaced_files_and_old_versions_after_a_week(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, topics = open_table(tmp_path, "iceberg"), Topics(a=8)
    run(table, topics, rows_max=2)
    table.compact(here)
    assert len(list(tmp_path.glob("date=*/*.parquet"))) == 6
    later = time.time() + iceberg_format.KEPT + 60
    monkeypatch.setattr(time, "time", lambda: later)
    table.compact(here)
    assert held(list(tmp_path.glob("date=*/*.parquet"))) == every(topics)
    assert len(StaticTable.from_metadata(str(tmp_path)).snapshots()) == 1
    assert held(seen("iceberg", tmp_path)) == every(topics)


@formats
def test_messages_from_impossible_days_are_written(tmp_path: Path, kind: str) -> None:
    times = [-1, 2**62, -(2**62)]

    class Strange(Topics):
        def stamped(self, offset: int) -> int:
            return times[offset]

    assert run(open_table(tmp_path, kind), Strange(a=3)) == 3
    assert held(seen(kind, tmp_path)) == every(Topics(a=3))


@formats
def test_archive_in_another_format_is_refused(tmp_path: Path, kind: str) -> None:
    run(open_table(tmp_path, kind), Topics(a=1))
    message = f"in format {kind}, not parquet; use --format {kind}, or archive to another directory"
    with pytest.raises(errors.BadArchive, match=message):
        open_table(tmp_path, "parquet")


@formats
def test_missing_package_is_reported_with_the_extra(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SVC-7"""
    monkeypatch.setattr(opening, "find_spec", lambda name: None)
    message = (
        rf'format {kind} needs \w+, which is not installed; run pip install "oncecast\[tables\]"'
    )
    with pytest.raises(errors.BadArchive, match=message):
        open_table(tmp_path, kind)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_moved_archive_is_continued(tmp_path: Path, kind: str) -> None:
    run(open_table(tmp_path / "one", kind), Topics(a=1))
    (tmp_path / "one").rename(tmp_path / "other")
    assert run(open_table(tmp_path / "other"), Topics(a=3)) == 2
    assert held(seen(kind, tmp_path / "other")) == every(Topics(a=3))


def test_delta_removes_replaced_files_after_the_retention_time(tmp_path: Path) -> None:
    table, topics = open_table(tmp_path, "delta"), Topics(a=8)
    run(table, topics, rows_max=2)
    table.compact(here)
    assert len(list(tmp_path.glob("date=*/*.parquet"))) == 6
    retention = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
    DeltaTable(str(tmp_path)).alter.set_table_properties(retention)
    table.compact(here)
    assert held(list(tmp_path.glob("date=*/*.parquet"))) == every(topics)


def test_object_store_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """SVC-7"""
    words = ["pipeline", "run", "archive", "--topics", "a", "--no-spark", "s3://bucket/archive"]
    assert main(words) == 1
    text = "s3://bucket/archive is the address of an object store; use a directory"
    assert text in capsys.readouterr().err


def test_moved_iceberg_table_is_refused(tmp_path: Path) -> None:
    run(open_table(tmp_path / "one", "iceberg"), Topics(a=1))
    (tmp_path / "one").rename(tmp_path / "other")
    with pytest.raises(errors.BadArchive, match=r"other was moved.*; move it back to .*/one"):
        run(open_table(tmp_path / "other"), Topics(a=1))


@pytest.mark.long
@formats
def test_archive_killed_before_a_step_neither_loses_nor_duplicates_messages(
    tmp_path: Path, kind: str
) -> None:
    """At no time does a reader of the format find duplicate messages or missing files."""
    command = [sys.executable, "-m", "tests.spark.archive_kills", kind, "compact", str(tmp_path)]
    subprocess.run([*command, "23"], check=True)


@pytest.mark.soak
@formats
@pytest.mark.parametrize("action", ["append", "compact"])
def test_archive_killed_before_each_step_neither_loses_nor_duplicates_messages(
    tmp_path: Path, kind: str, action: str
) -> None:
    command = [sys.executable, "-m", "tests.spark.archive_kills", kind, action, str(tmp_path)]
    subprocess.run(command, check=True)
