"""Run `oncecast pipeline run audit`: read traces, check them and explain the faults.

Spark sorts the rows of each group on disk if memory is too small. The driver receives only the
summaries of blocks, the counts and the first faults of each kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from pyspark import StorageLevel
from pyspark.sql import Window
from pyspark.sql import functions as f

from oncecast.spark.audit.faults import MEANING, Fault
from oncecast.spark.audit.files import Files, Place
from oncecast.spark.audit.parsing import Block, parsed
from oncecast.spark.audit.reading import SESSIONS, SUBSCRIPTIONS, TOPICS
from oncecast.spark.audit.rows import (
    FAULTS,
    FILE_BITS,
    FIRST_FAULT,
    SPARK_SCHEMA,
    Check,
    Row,
    What,
)
from oncecast.spark.audit.storing import OFFSETS, PRODUCERS
from oncecast.spark.audit.working import JOBS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES = 5  # maximum faults of each kind that are listed; all faults are counted
STRETCH_BITS = 16  # the checks of a topic work on groups of 2**16 consecutive offsets
PARTITION_LINES = 250_000  # number of trace lines per task of a check
ABSENT = (
    "lost",
    "not redelivered",
    "lost job",
)  # faults that no line about the message itself can prove
T = TypeVar("T")


@dataclass
class Report:
    files: int
    lines: int
    counts: dict[str, int]  # number of faults by kind, in the order of MEANING
    faults: list[Fault]  # the first faults of each kind
    unchecked: list[str]  # runs whose files are incomplete

    def fields(self) -> dict[str, Any]:
        faults = [each.fields() for each in self.faults]
        return {**vars(self), "faults": faults}


def audit_traces(
    spark: SparkSession, paths: list[str], *, killed: bool = False, examples: int = EXAMPLES
) -> Report:
    """Audit traces, and return the report.

    If `killed` is true, accept a trace without an end record: its writer was killed.
    """
    kept: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        kept.append(frame.persist(StorageLevel.DISK_ONLY))
        return kept[-1]

    texts = read(spark, paths)
    try:
        lines = keep(texts.mapInArrow(parsed, SPARK_SCHEMA))
        blocks = lines.where(f.col("what") == What.BLOCK).select("data").collect()
        summaries = [msgspec.json.decode(row.data, type=Block) for row in blocks]
        files = Files(texts.inputFiles(), summaries, killed=killed)
        events = positioned(spark, lines, files.places())
        tasks = files.lines // PARTITION_LINES + 1
        found = checked(events, lambda check, inputs: keep(run(check, inputs, tasks)))
        faults = reduce(type(events).unionByName, found).where(f.col("what") >= FIRST_FAULT)
        counts = count(faults)
        rows = first_of(faults, examples) if counts else []
        rows = proved(rows, placed_at(found[0], rows))
        named = explained(files, rows, names_of(events, rows))
    finally:
        for frame in kept:
            frame.unpersist()
    for fault in files.faults:
        counts[fault.fault] = counts.get(fault.fault, 0) + 1
    ordered = {name: counts[name] for name in MEANING if name in counts}
    every = [*files.faults, *named]
    listed = [
        each for name in ordered for each in [row for row in every if row.fault == name][:examples]
    ]
    return Report(len(files), files.lines, ordered, listed, files.unchecked)


def read(spark: SparkSession, paths: list[str]) -> DataFrame:
    return spark.read.text(paths).select(
        f.col("_metadata.file_path").alias("path"),
        f.col("_metadata.file_block_start").alias("block"),
        f.col("value").cast("binary").alias("value"),  # a line may not be valid UTF-8
    )


def positioned(spark: SparkSession, lines: DataFrame, places: list[Place]) -> DataFrame:
    """Return the rows of the files in `places`, each with its position `at`.

    The position identifies a line, and orders the lines of an incarnation. Topics and readers from
    different runs get different hashes.
    """
    schema = ", ".join(f"{name} long" for name in ("other", *Place._fields[1:]))
    known = spark.createDataFrame(places, schema).withColumnRenamed("certain", "sure")
    changed = {
        "at": f"(number << {FILE_BITS}) + at",
        "other": "-1L",
        "topic": "if(topic < 0, topic, topic ^ salt)",
        "reader": "if(reader < 0, reader, reader ^ salt)",
        "session": "if(session < 0, session, (incarnation << 32) + session)",
        "certain": "sure",
    }
    columns = [f.expr(changed.get(name, name)).alias(name) for name in Row._fields]
    return lines.join(f.broadcast(known), "other").select(*columns)


def checked(events: T, run: Callable[[Check, list[T]], T]) -> list[T]:
    """Run each check on the rows that it needs, and return all results."""
    stored = run(OFFSETS, [events])
    produced = run(PRODUCERS, [events, stored])
    sessions = run(SESSIONS, [events])
    turns = run(SUBSCRIPTIONS, [sessions])
    jobs = run(JOBS, [events])
    topics = run(TOPICS, [events, stored, produced, sessions, turns, jobs])
    return [stored, produced, sessions, turns, jobs, topics]


def run(check: Check, inputs: list[DataFrame], tasks: int) -> DataFrame:
    """Group and sort the rows of a check, run the check, and return its rows."""
    stretch = f.expr(f"offset >> {STRETCH_BITS}").alias("stretch")
    columns = [stretch if name == "stretch" else f.col(name) for name in check.needed]
    chosen = [each.where(f.col("what").isin(*check.kinds)).select(*columns) for each in inputs]
    rows = reduce(lambda one, other: one.unionByName(other), chosen)
    rows = rows.repartition(tasks, *check.key).sortWithinPartitions(*check.order)
    return rows.mapInArrow(check.run, SPARK_SCHEMA)


def count(faults: DataFrame) -> dict[str, int]:
    sums = faults.groupBy("what").agg(f.sum("messages").alias("messages")).collect()
    return {FAULTS[row["what"] - FIRST_FAULT]: row.messages for row in sums}


def first_of(faults: DataFrame, examples: int) -> list[Row]:
    order = Window.partitionBy("what").orderBy("at", "offset")
    ranked = faults.withColumn("rank", f.row_number().over(order))
    first = ranked.where(f.col("rank") <= examples).orderBy("what", "rank").select(*Row._fields)
    return [Row(*each) for each in first.collect()]


def names_of(events: DataFrame, rows: list[Row]) -> dict[int, str]:
    """Return the topic, subscription and producer names in these rows, by hash."""
    wanted = {each for row in rows for each in (row.topic, row.reader, row.producer) if each >= 0}
    number = f.greatest("topic", "reader", "producer").alias("number")
    named = events.where(f.col("what") == What.NAME).select(number, "data")
    found = named.where(f.col("number").isin(*wanted)).distinct().collect() if wanted else []
    return {row.number: bytes(row.data).decode() for row in found}


def placed_at(stored: DataFrame, rows: list[Row]) -> dict[tuple[int, int], Row]:
    """Return the stored messages that `rows` report as absent, by topic and offset."""
    lost = [row for row in rows if FAULTS[row.what - FIRST_FAULT] in ABSENT]
    places = stored.where(f.col("what") == What.PLACED)
    for name in ("topic", "offset"):
        places = places.where(f.col(name).isin(*{getattr(row, name) for row in lost}))
    found = [Row(*each) for each in places.select(*Row._fields).collect()] if lost else []
    return {(row.topic, row.offset): row for row in found}


def proved(rows: list[Row], placed: dict[tuple[int, int], Row]) -> list[Row]:
    """Return the rows, adding to each absent message a line that proves that it was stored."""
    found = []
    for row in rows:
        place = placed.get((row.topic, row.offset))
        if place is not None and FAULTS[row.what - FIRST_FAULT] in ABSENT:
            other = place.at if place.at >= 0 else place.other
            row = row._replace(other=other, producer=place.producer, sequence=place.sequence)
        found.append(row)
    return found


def explained(files: Files, rows: list[Row], names: dict[int, str]) -> list[Fault]:
    """Return the faults with names and lines filled in."""
    found = []
    for row in rows:
        lines = [files.line(at) for at in (row.at, row.other) if at >= 0]
        fields = {
            "topic": names.get(row.topic),
            "subscription": names.get(row.reader),
            "producer": names.get(row.producer),
            "sequence": None if row.sequence < 0 else row.sequence,
            "offset": None if row.offset < 0 else row.offset,
            "messages": None if row.messages == 1 else row.messages,
        }
        about = {key: value for key, value in fields.items() if value is not None}
        name = FAULTS[row.what - FIRST_FAULT]
        found.append(Fault(name, lines[0][0], [line for _, line in lines], about))
    return found
