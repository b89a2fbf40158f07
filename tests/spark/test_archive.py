"""PIPE-4: an archive contains each message once, even after a kill. These tests need no Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as some

from oncecast import errors
from oncecast.client.starts import EARLIEST, from_offset
from oncecast.spark.archive import log
from oncecast.spark.archive.intervals import merged, missing
from oncecast.spark.archive.job import archive, here
from oncecast.spark.archive.opening import open_table
from oncecast.spark.archive.planning import first_rows
from oncecast.spark.archive.values import ABANDONED_AFTER, INTERNAL, STAGED, File
from oncecast.spark.archive.writing import OPEN_MAX, Writer
from oncecast.spark.ranges import Range
from oncecast.wire.batch_arrow import SCHEMA
from tests.spark.archive_kills import Topics, every, held, run

offsets = some.integers(0, 40)
intervals = some.lists(some.tuples(offsets, offsets))


def covered(found: Sequence[tuple[int, int]]) -> set[int]:
    return {offset for first, until in found for offset in range(first, until)}


@given(intervals, some.tuples(offsets, offsets))
def test_missing_offsets_are_those_outside_all_intervals(
    given_intervals: list[tuple[int, int]], wanted: tuple[int, int]
) -> None:
    all_merged = merged(given_intervals)
    assert covered(all_merged) == covered(given_intervals)
    assert all(one[1] < other[0] for one, other in pairwise(all_merged))
    lacking = list(missing(wanted, all_merged))
    assert covered(lacking) == covered([wanted]) - covered(given_intervals)
    assert all(first < until for first, until in lacking)


def test_second_run_adds_only_new_messages(tmp_path: Path) -> None:
    table = open_table(tmp_path / "archive")
    assert run(table, Topics(a=10, b=3)) == 13
    assert run(table, Topics(a=10, b=3)) == 0
    topics = Topics(a=12, b=3, c=1)
    assert run(open_table(tmp_path / "archive"), topics) == 3
    assert held(table.files()) == every(topics)
    assert not list((tmp_path / "archive" / INTERNAL / STAGED).iterdir())


def test_plain_parquet_readers_see_all_columns_and_the_day(tmp_path: Path) -> None:
    run(open_table(tmp_path), Topics(a=10))
    found = ds.dataset(tmp_path, partitioning="hive").to_table().sort_by("offset")
    assert found.schema.names == [*SCHEMA.names, "date"]
    assert found["date"].to_pylist() == [f"1970-01-0{1 + each // 4}" for each in range(10)]
    assert found["value"].to_pylist() == [b"%d" % each for each in range(10)]


def test_each_commit_has_at_most_the_given_number_of_messages(tmp_path: Path) -> None:
    table = open_table(tmp_path)
    assert run(table, Topics(a=10, b=3), rows_max=4) == 13
    assert table.state().version == 4
    assert held(table.files()) == every(Topics(a=10, b=3))


def test_slower_of_two_concurrent_runs_plans_again(tmp_path: Path) -> None:
    table, topics = open_table(tmp_path), Topics(a=10)
    node: Any = topics
    added: list[int] = []

    def overtaken(pieces: Sequence[Any], work: Any) -> list[File]:
        files = here(pieces, work)
        if not added:
            topics.counts["a"] = 12
            added.append(run(open_table(tmp_path), topics, rows_max=4))
        return files

    slower = archive(node, lambda client, archived: topics.views(), table, overtaken)
    assert (added, slower) == ([12], 0)
    assert held(table.files()) == every(Topics(a=12))
    assert held(list(tmp_path.glob("**/*.parquet"))) == every(Topics(a=12))


def test_backfill_adds_missing_earlier_messages(tmp_path: Path) -> None:
    table, topics = open_table(tmp_path), Topics(a=10)
    assert run(table, topics, start=from_offset(7)) == 3
    assert run(table, topics, start=from_offset(2)) == 5
    assert run(table, topics) == 0
    assert run(table, topics, start=EARLIEST) == 2
    assert held(table.files()) == every(topics)
    assert table.state().topics["a"].held == ((0, 10),)


def test_lost_messages_are_reported_and_skipped_only_on_demand(tmp_path: Path) -> None:
    table, topics = open_table(tmp_path), Topics(a=10)
    run(table, topics)
    topics.counts["a"], topics.first["a"] = 20, 15
    with pytest.raises(
        errors.MessagesLost, match=r"offsets 10 to 14 of topic 'a'.*--from earliest"
    ):
        run(table, topics)
    assert run(table, topics, start=EARLIEST) == 5
    assert table.state().topics["a"].held == ((0, 10), (15, 20))
    assert run(table, topics) == 0


def test_another_topic_with_the_same_name_is_refused(tmp_path: Path) -> None:
    table, topics = open_table(tmp_path), Topics(a=10)
    run(table, topics)
    topics.ids["a"] = 77
    with pytest.raises(errors.TopicReplaced, match="to another directory"):
        run(table, topics)
    with pytest.raises(errors.OutOfRange, match="offset 11 of topic 'a'"):
        run(open_table(tmp_path / "other"), topics, start=from_offset(11))


def test_archives_from_an_older_version_and_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "old" / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(errors.BadArchive, match=r"written by an older version.*--from"):
        open_table(tmp_path / "old")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.parquet").touch()
    with pytest.raises(errors.BadArchive, match=r"not part of an archive: x.parquet"):
        open_table(tmp_path / "other")
    (tmp_path / "file").touch()
    with pytest.raises(errors.BadArchive, match="not a directory"):
        open_table(tmp_path / "file")


def test_commit_is_completed_later_if_its_files_could_not_be_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, topics = open_table(tmp_path), Topics(a=10)

    def full(self: Path, target: Path) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", full)
        with pytest.raises(OSError, match="disk full"):
            run(table, topics)
    assert not list(tmp_path.glob("**/*.parquet"))
    assert run(open_table(tmp_path), topics) == 0
    assert held(list(tmp_path.glob("**/*.parquet"))) == every(topics)


def test_missing_and_damaged_files_are_reported(tmp_path: Path) -> None:
    table = open_table(tmp_path)
    run(table, Topics(a=3))
    [path] = table.files()
    Path(path).unlink()
    with pytest.raises(errors.BadArchive, match=r"\.parquet is missing"):
        table.state()
    stored = tmp_path / INTERNAL / "00000001.json"
    stored.write_text(json.dumps(json.loads(stored.read_text()) | {"format": 2}))
    with pytest.raises(errors.BadArchive, match=r"format 2.*newer version"):
        table.state()
    stored.write_text("{")
    with pytest.raises(errors.BadArchive, match=r"00000001.json is damaged"):
        table.state()


def test_compaction_leaves_one_file_for_each_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "SNAPSHOT_EVERY", 3)
    table, topics = open_table(tmp_path), Topics(a=12, b=12)
    run(table, topics, rows_max=2)
    many = table.files()
    assert table.compact(here) == len(many) == 12
    assert len(table.files()) == 3
    assert table.compact(here) == 0
    assert held(table.files()) == held(list(tmp_path.glob("**/*.parquet"))) == every(topics)
    topics.counts["a"] = 20
    assert run(table, topics) == 8
    assert held(table.files()) == every(topics)


def test_files_from_killed_runs_are_removed_after_a_day(tmp_path: Path) -> None:
    table = open_table(tmp_path)
    run(table, Topics(a=1))
    staged = tmp_path / INTERNAL / STAGED
    for name, age in (("old", ABANDONED_AFTER + 60), ("new", 60)):
        (staged / name).mkdir()
        (staged / name / "x.part").touch()
        then = (staged / name).stat().st_mtime - age
        os.utime(staged / name, (then, then))
    run(table, Topics(a=2))
    assert [each.name for each in staged.iterdir()] == ["new"]


def test_messages_from_many_or_impossible_days_are_written(tmp_path: Path) -> None:
    times = [-1, *(day * 86_400_000_000 for day in range(OPEN_MAX + 5)), 2**62, -(2**62)]
    columns = {
        field.name: pa.array(times, pa.int64()).cast(field.type)
        if field.name == "timestamp"
        else pa.array([None] * len(times), field.type)
        for field in SCHEMA
    }
    writer = Writer(tmp_path)
    writer.write(pa.RecordBatch.from_pydict(columns, SCHEMA))
    files = writer.close()
    assert sum(each.rows for each in files) == len(times)
    dates = [each.date for each in files]
    assert dates.count(None) == 2
    assert "1969-12-31" in dates
    assert files[-1].path.startswith(f"date={files[-1].date or '__HIVE_DEFAULT_PARTITION__'}/")


def test_first_rows_limits_the_ranges_to_a_number_of_rows() -> None:
    ranges = [Range("a", 1, 5, 10), Range("b", 2, 0, 10), Range("c", 3, 0, 10)]
    assert first_rows(ranges, 7) == [Range("a", 1, 5, 10), Range("b", 2, 0, 2)]


@pytest.mark.long
@pytest.mark.parametrize("action", ["append", "compact"])
def test_archive_killed_before_a_file_operation_neither_loses_nor_duplicates_messages(
    tmp_path: Path, action: str
) -> None:
    """At no time does a plain reader find torn files or duplicate messages."""
    command = [sys.executable, "-m", "tests.spark.archive_kills", "parquet", action, str(tmp_path)]
    subprocess.run([*command, "9"], check=True)


@pytest.mark.soak
@pytest.mark.parametrize("action", ["append", "compact"])
def test_archive_killed_before_each_file_operation_neither_loses_nor_duplicates_messages(
    tmp_path: Path, action: str
) -> None:
    command = [sys.executable, "-m", "tests.spark.archive_kills", "parquet", action, str(tmp_path)]
    subprocess.run(command, check=True)
