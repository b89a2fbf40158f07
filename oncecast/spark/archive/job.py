"""Write each message that a table lacks once, even if a process is killed (PIPE-4)."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from oncecast.client import blocking
from oncecast.client.columns import batches
from oncecast.client.starts import from_offset
from oncecast.spark.archive.planning import first_rows, lacking, with_ranges
from oncecast.spark.archive.table import Table
from oncecast.spark.archive.values import Execute, File, Run, Work
from oncecast.spark.archive.writing import Writer
from oncecast.spark.options import Node
from oncecast.spark.ranges import Range, enough, packed
from oncecast.wire.batch_arrow import SCHEMA
from oncecast.wire.commands import Start
from oncecast.wire.frames import TopicView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Piece = tuple[Range, ...]  # the ranges that one task writes
# Takes the topics in the table, and returns the topics on the node that should be archived.
Select = Callable[[blocking.Client, Collection[str]], Mapping[str, TopicView]]
FILE = "run string, name string, date string, rows long, bytes long"


def archive(
    node: Node,
    select: Select,
    table: Table,
    execute: Execute,
    *,
    start: Start | None = None,
    rows_max: int | None = None,
) -> int:
    """Archive the topics' current messages, and return how many were added.

    With `start`, also fill gaps before the end of the table. `rows_max` limits the messages per
    commit.
    """
    added = 0
    with node.connect() as client:
        ends: dict[str, int] = {}
        while True:
            before = table.state()
            views = select(client, before.topics)
            ends = ends or {name: view.next for name, view in views.items()}
            ranges = [
                each
                for name, view in views.items()
                if name in ends
                for each in lacking(client, view, before.topics.get(name), start, ends[name])
            ]
            ranges = first_rows(ranges, rows_max)
            if not ranges:
                return added
            with Run(table.directory) as run:
                every = packed(ranges, enough(ranges, os.cpu_count() or 1), None)
                files = execute(every, work_of(node, run.path))
                rows = sum(each.rows for each in ranges)
                assert sum(each.rows for each in files) == rows, (
                    "the files must contain each message once"
                )
                if table.commit(before, with_ranges(before.topics, ranges), files):
                    added += rows


def work_of(node: Node, directory: Path) -> Work[Piece]:
    """Return the function that a task runs to write a piece to new files in `directory`."""

    def work(piece: Piece) -> Iterator[File]:
        writer = Writer(directory)
        with node.connect(patient=True) as client:
            for topic, topic_id, first, until, *_ in piece:
                slices = client.scan(topic, from_offset(first), until, topic_id=topic_id)
                for batch in batches(slices, SCHEMA.names):
                    writer.write(batch)
        yield from writer.close()

    return work


def here(every: Sequence[Any], work: Work[Any]) -> list[File]:
    """Run work in this process, piece by piece."""
    return [file for piece in every for file in work(piece)]


def on_spark(spark: SparkSession) -> Execute:
    """Return a function that runs work as Spark tasks."""
    from oncecast.spark.farm import farmed

    def execute(every: Sequence[Any], work: Work[Any]) -> list[File]:
        def as_rows(piece: Any) -> Iterator[pa.RecordBatch]:
            rows = [msgspec.structs.asdict(each) for each in work(piece)]
            yield pa.RecordBatch.from_pylist(rows, schema=FILE_SCHEMA)

        found = farmed(spark, every, as_rows, FILE).collect()
        return [File(**row.asDict()) for row in found]

    return execute


FILE_SCHEMA = pa.schema(
    {
        "run": pa.string(),
        "name": pa.string(),
        "date": pa.string(),
        "rows": pa.int64(),
        "bytes": pa.int64(),
    }
)
