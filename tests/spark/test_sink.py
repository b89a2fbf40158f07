"""PIPE-1 PIPE-2: the sink, used as Spark uses it."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import patch

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql.types import StructType

from oncecast import Policy, blocking, errors
from oncecast.errors import BadOption, BadRows
from oncecast.spark import sink
from oncecast.spark.register import OncecastSource
from tests.spark.micro_batches import Task, lower, values

pytestmark = pytest.mark.long

KEEP = Policy(keep_all=True)


def schema(columns: str) -> StructType:
    """Parse a schema without Spark, which needs Java for that."""
    found = StructType()
    for each in columns.split(", "):
        name, kind = each.split()
        found = found.add(name, kind)
    return found


def writer(columns: str, overwrite: bool = False, **options: str) -> sink.BatchWriter:
    source = OncecastSource(lower(options))
    return source.writer(schema(columns), overwrite)


def write(to: sink.BatchWriter, partition: int, **columns: Any) -> sink.Parts:
    with patch.object(sink, "task", lambda: Task(partition, "", 0)):
        return to.write(iter([pa.record_batch(columns)]))


def test_rows_are_put_in_partition_order(client: blocking.Client, address: str) -> None:
    client.create_topic("ordered", KEEP)
    to = writer("value string", address=address, topic="ordered")
    parts = [write(to, partition, value=[b"%d" % partition]) for partition in (2, 0, 1)]
    assert values(client, "ordered") == []
    to.commit([*parts])
    assert values(client, "ordered") == [b"0", b"1", b"2"]


def test_failed_batch_puts_nothing_and_leaves_nothing(
    client: blocking.Client, address: str
) -> None:
    client.create_topic("all.or.none", KEEP)
    to = writer("value string", address=address, topic="all.or.none")
    parts = write(to, 0, value=[b"good"])
    with pytest.raises(
        ValueError, match="column 'value' is missing or contains nulls; drop those rows"
    ):
        write(to, 1, value=[b"good", None])
    to.abort([parts, None])
    assert values(client, "all.or.none") == []
    assert client.drop_staged(parts.source, parts.number) == 0


def test_large_rows_are_split_into_parts_that_can_be_sent(
    client: blocking.Client, address: str
) -> None:
    client.create_topic("large", KEEP)
    to = writer("value binary", address=address, topic="large", zstd="1")
    rows = [bytes([each]) * (3 << 20) for each in range(5)]
    parts = write(to, 0, value=rows)
    assert len(parts.names) == 5
    to.commit([parts])
    assert values(client, "large") == rows


def test_row_without_a_topic_is_rejected(address: str) -> None:
    to = writer("value binary, topic string", address=address)
    with pytest.raises(BadRows, match="a row has no topic; fill in the `topic` column or drop"):
        write(to, 0, value=[b"a", b"b"], topic=["t", None])


@pytest.mark.parametrize(
    ("columns", "options", "overwrite", "kind", "text"),
    [
        (
            "number integer",
            {"topic": "t"},
            False,
            BadRows,
            "column `value` is missing; add it",
        ),
        ("value integer", {"topic": "t"}, False, BadRows, "column value is int; cast it to binary"),
        (
            "value string, more integer",
            {"topic": "t"},
            False,
            BadRows,
            "'more' is not supported; drop it",
        ),
        ("value string", {}, False, BadOption, "set either option topic or a column"),
        ("value string, topic string", {"topic": "t"}, False, BadOption, "set either option topic"),
        ("value string", {"topics": "t"}, False, BadOption, "unknown option 'topics'; choose from"),
        ("value string", {"topic": "t"}, True, BadOption, "is not supported; use"),
    ],
)
def test_invalid_input_is_rejected(
    columns: str, options: dict[str, str], overwrite: bool, kind: type[Exception], text: str
) -> None:
    """SVC-7"""
    for streaming in (False, True):
        source = OncecastSource(lower(options))
        make = source.streamWriter if streaming else source.writer
        with pytest.raises(kind, match=re.escape(text)):
            make(schema(columns), overwrite)


def test_unreachable_node_is_reported_with_a_remedy() -> None:
    """SVC-7"""
    to = writer("value string", address="127.0.0.1:1", timeout="1", topic="t")
    with pytest.raises(errors.NotConnected, match=r"127\.0\.0\.1:1.*oncecast serve"):
        write(to, 0, value=[b"a"])


def test_rows_of_another_batch_are_not_published(address: str) -> None:
    """If Spark's batch numbers disagree, exactly-once is impossible."""
    source = OncecastSource({"address": address, "topic": "t"})
    to = source.streamWriter(schema("value string"), False)
    with pytest.raises(RuntimeError, match="rows of batch 3 are in batch 4"):
        to.commit([sink.Parts("spark/q", 3, ("a",))], 4)
