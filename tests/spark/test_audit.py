"""PIPE-4: the audit of a trace names exactly what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bench.spark.planted import FAULTS, planted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

Line = dict[str, Any]


def stored(offset: int, sequence: int | None = None) -> Line:
    sequence = offset if sequence is None else sequence
    return {"kind": "stored", "producer": "p", "sequence": sequence, "offset": offset}


def came(offset: int, *, again: bool = False, to: str = "s") -> Line:
    line = {**stored(offset), "kind": "delivery", "subscription": to}
    return {**line, "redelivered": again}


def again(*offsets: int) -> list[Line]:
    return [came(each, again=True) for each in offsets]


def later(*offsets: int) -> list[Line]:
    return [did("subscribe", offsets[0]), *map(came, offsets)]


def did(kind: str, offset: int, by: str = "s") -> Line:
    return {"kind": kind, "subscription": by, "offset": offset}


ALL = [stored(offset) for offset in range(6)]
BEGIN = did("subscribe", 0)


def test_one_row_for_each_fault_and_none_for_what_is_in_order(spark: SparkSession) -> None:
    """Each story once; one Spark job for all of them, by a topic each."""
    from oncecast.spark.transformations import TRACE, audit

    stories: dict[str, tuple[list[Line], list[tuple[str, int]]]] = {
        "all is well": ([BEGIN, *ALL, *map(came, range(6))], []),
        "one is lost": ([BEGIN, *ALL, *map(came, (0, 1, 3, 4, 5))], [("lost", 2)]),
        "the end is lost": ([BEGIN, *ALL, *map(came, range(5))], [("lost", 5)]),
        "one comes twice": ([BEGIN, *ALL, *map(came, (0, 1, 1, 2, 3, 4, 5))], [("duplicated", 1)]),
        "two are swapped": ([BEGIN, *ALL, *map(came, (0, 2, 1, 3, 4, 5))], [("out of order", 1)]),
        "what is asked for again may come again": (
            [BEGIN, *ALL, *map(came, range(4)), did("nack", 2), *again(2, 3), came(4), came(5)],
            [],
        ),
        "what was not asked for may not": (
            [BEGIN, *ALL, *map(came, range(4)), did("nack", 3), *again(2, 3), came(4), came(5)],
            [("duplicated", 2)],
        ),
        "who left gets it again, but marked": (
            [BEGIN, *ALL, *map(came, range(4)), did("leave", 3), came(3), came(4), came(5)],
            [("duplicated", 3)],
        ),
        "what was forgone is not lost": (
            [BEGIN, *ALL, came(0), came(1), did("unsubscribe", 1), *later(4, 5)],
            [],
        ),
        "what was put before is not owed": ([*ALL, *later(4, 5)], []),
        "stored twice": (
            [stored(0), stored(1), stored(2, sequence=1)],
            [("stored twice", 2)],
        ),
        "stored out of order": (
            [stored(0), stored(1, sequence=2), stored(2, sequence=1)],
            [("stored out of order", 2)],
        ),
    }
    blank = dict.fromkeys(each.split()[0] for each in TRACE.split(", "))
    rows = [
        {**blank, "topic": topic, "time": 0.0, **each, "line": number}
        for topic, (lines, _) in stories.items()
        for number, each in enumerate(lines)
    ]
    found: dict[str, list[tuple[str, int]]] = {topic: [] for topic in stories}
    for row in audit(spark.createDataFrame(rows, TRACE)).collect():
        found[row.topic].append((row.fault, row.offset))
    assert found == {topic: faults for topic, (_, faults) in stories.items()}


def test_of_many_deliveries_exactly_the_three_that_are_wrong_are_named(
    spark: SparkSession,
) -> None:
    """Of a million and more in `python -m bench.spark --only audit`."""
    from oncecast.spark.transformations import audit

    faults = audit(planted(spark, 30_000)).collect()
    named = [(row.fault, row.topic, row.subscription, row.offset) for row in faults]
    assert sorted(named) == sorted(FAULTS)
