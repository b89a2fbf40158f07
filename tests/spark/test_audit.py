"""PIPE-4: the audit of a trace lists exactly the faults."""

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


def test_audit_lists_each_fault_and_nothing_else(spark: SparkSession) -> None:
    """One Spark job checks all cases, with a topic for each."""
    from oncecast.spark.transformations import TRACE, audit

    cases: dict[str, tuple[list[Line], list[tuple[str, int]]]] = {
        "no faults": ([BEGIN, *ALL, *map(came, range(6))], []),
        "a message is lost": ([BEGIN, *ALL, *map(came, (0, 1, 3, 4, 5))], [("lost", 2)]),
        "the last message is lost": ([BEGIN, *ALL, *map(came, range(5))], [("lost", 5)]),
        "a message is delivered twice": (
            [BEGIN, *ALL, *map(came, (0, 1, 1, 2, 3, 4, 5))],
            [("duplicated", 1)],
        ),
        "two messages are swapped": (
            [BEGIN, *ALL, *map(came, (0, 2, 1, 3, 4, 5))],
            [("out of order", 1)],
        ),
        "a requested message may be delivered again": (
            [BEGIN, *ALL, *map(came, range(4)), did("nack", 2), *again(2, 3), came(4), came(5)],
            [],
        ),
        "a message is delivered again without a request": (
            [BEGIN, *ALL, *map(came, range(4)), did("nack", 3), *again(2, 3), came(4), came(5)],
            [("duplicated", 2)],
        ),
        "a reader that left gets it again with a mark": (
            [BEGIN, *ALL, *map(came, range(4)), did("leave", 3), came(3), came(4), came(5)],
            [("duplicated", 3)],
        ),
        "messages given up by unsubscribing are not lost": (
            [BEGIN, *ALL, came(0), came(1), did("unsubscribe", 1), *later(4, 5)],
            [],
        ),
        "messages before the subscription are not lost": ([*ALL, *later(4, 5)], []),
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
        for topic, (lines, _) in cases.items()
        for number, each in enumerate(lines)
    ]
    found: dict[str, list[tuple[str, int]]] = {topic: [] for topic in cases}
    for row in audit(spark.createDataFrame(rows, TRACE)).collect():
        found[row.topic].append((row.fault, row.offset))
    assert found == {topic: faults for topic, (_, faults) in cases.items()}


def test_audit_of_many_deliveries_lists_exactly_three_faults(
    spark: SparkSession,
) -> None:
    """`python -m bench.spark --only audit` does the same with more than a million."""
    from oncecast.spark.transformations import audit

    faults = audit(planted(spark, 30_000)).collect()
    named = [(row.fault, row.topic, row.subscription, row.offset) for row in faults]
    assert sorted(named) == sorted(FAULTS)
