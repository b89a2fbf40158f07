"""PIPE-1 PIPE-2: use the sink as Spark does."""

from __future__ import annotations

import itertools
import re
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql.types import ArrayType, StructType

from oncecast import Policy, blocking, errors
from oncecast.errors import BadOption, BadRows
from oncecast.spark import sink
from oncecast.spark.register import OncecastSource
from tests.live.test_serve import Process
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


def test_failed_batch_puts_no_rows_and_leaves_no_staged_parts(
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
        ("value integer", {"topic": "t"}, False, BadRows, "value has type int; cast it to binary"),
        (
            "value string, more integer",
            {"topic": "t"},
            False,
            BadRows,
            "'more' is not supported; drop it",
        ),
        ("value string", {}, False, BadOption, "set option topic, or add a column `topic`"),
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


def test_rows_from_another_batch_are_not_published(address: str) -> None:
    """If Spark's batch numbers disagree, exactly-once is impossible."""
    source = OncecastSource({"address": address, "topic": "t"})
    to = source.streamWriter(schema("value string"), False)
    with pytest.raises(RuntimeError, match="batch 4 contains rows of batch 3"):
        to.commit([sink.Parts("spark/q", 3, ("a",))], 4)


def stream(
    address: str, query: str, batch: int, rows: list[bytes], run: str, to: str = "", **options: str
) -> None:
    """Write and commit a micro-batch, as one run of a query does. `to` fills the column `topic`."""
    given = lower({"address": address, **options})
    make = OncecastSource(given).streamWriter
    kinds = schema("value binary, topic string" if to else "value binary")
    columns = {"value": rows, **({"topic": [to] * len(rows)} if to else {})}
    with patch.object(sink, "task", lambda: Task(0, query, batch, run)):
        parts = make(kinds, False).write(iter([pa.record_batch(columns)]))
    make(kinds, False).commit([parts], batch)


def test_query_with_a_restored_older_checkpoint_fails(
    client: blocking.Client, address: str
) -> None:
    """PIPE-2: Spark replays only the last batch, with the same content."""
    for batch in (0, 1):
        stream(address, "restored", batch, [b"%d" % batch], "one", topic="restored")
    with pytest.raises(errors.OldNumber, match=r"number 0 of source 'spark/restored'.*txnAppId"):
        stream(address, "restored", 0, [b"other"], "two", topic="restored")
    with pytest.raises(errors.OtherContent, match=r"already published number 1 .*newest"):
        stream(address, "restored", 1, [b"other"], "two", topic="restored")
    stream(address, "restored", 1, [b"1"], "three", topic="restored")
    assert values(client, "restored") == [b"0", b"1"]


def test_query_with_a_restored_checkpoint_fails_even_if_its_first_batches_are_empty(
    client: blocking.Client, address: str
) -> None:
    """PIPE-2: if the batches are now smaller, they may have no rows until the numbers are new
    again."""
    stream(address, "empty", 0, [b"0"], "one", topic="empty")
    stream(address, "empty", 1, [], "one", topic="empty")
    for batch, error in ((0, errors.OldNumber), (1, None), (2, None)):
        with pytest.raises(error) if error else nullcontext():
            stream(address, "empty", batch, [], "two", topic="empty")
    with pytest.raises(errors.OtherContent):
        stream(address, "empty", 2, [b"0"], "three", topic="empty")
    assert values(client, "empty") == [b"0"]


def test_replay_in_another_order_adds_nothing(client: blocking.Client, address: str) -> None:
    """PIPE-2"""
    stream(address, "order", 0, [b"a", b"b", b"c"], "one", topic="order")
    stream(address, "order", 0, [b"c", b"a", b"b"], "two", topic="order")
    assert values(client, "order") == [b"a", b"b", b"c"]


def test_nondeterministic_query_may_skip_the_content_check(
    client: blocking.Client, address: str
) -> None:
    """PIPE-2"""
    stream(address, "random", 0, [b"a"], "one", topic="random")
    stream(address, "random", 0, [b"b"], "two", topic="random", replay="skip")
    assert values(client, "random") == [b"a"]


def test_offset_record_in_the_checkpoint_identifies_a_batch(
    client: blocking.Client, address: str, tmp_path: Path
) -> None:
    """PIPE-2: a replay has the same record, and a batch that is planned again has another one."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id":"recorded"}')
    record = tmp_path / "offsets" / "0"
    record.write_text("planned at 1")
    given = {"topic": "recorded", "checkpointLocation": f"file://{tmp_path}"}
    stream(address, "recorded", 0, [b"a"], "one", **given)
    stream(address, "recorded", 0, [b"random"], "two", **given)
    record.write_text("planned at 2")
    with pytest.raises(errors.OtherContent):
        stream(address, "recorded", 0, [b"a"], "three", **given)
    assert values(client, "recorded") == [b"a"]


def test_only_one_of_two_cloned_queries_can_continue(client: blocking.Client, address: str) -> None:
    """PIPE-2: a zombie driver on the same checkpoint is fenced in the same way."""
    stream(address, "cloned", 0, [b"0"], "one", topic="cloned")
    stream(address, "cloned", 1, [b"clone"], "two", topic="cloned")
    with pytest.raises(errors.TakenOver, match="stop all but one of the queries"):
        stream(address, "cloned", 1, [b"1"], "one", topic="cloned")
    stream(address, "cloned", 0, [b"apart"], "three", topic="cloned", txnAppId="clone")
    assert values(client, "cloned") == [b"0", b"clone", b"apart"]


def test_missing_topic_is_created_and_keeps_all_messages(
    client: blocking.Client, address: str
) -> None:
    to = writer("value string", address=address, topic="created")
    to.commit([write(to, 0, value=[b"a"])])
    assert values(client, "created") == [b"a"]
    assert client.describe("created").policy == KEEP
    to = writer("value string", address=address, topic="absent", createTopics="false")
    with pytest.raises(errors.NoSuchTopic, match="set option createTopics to true"):
        write(to, 0, value=[b"a"])


def test_topic_that_would_drop_the_rows_is_refused(client: blocking.Client, address: str) -> None:
    client.create_topic("dropping")
    to = writer("value string", address=address, topic="dropping")
    with pytest.raises(errors.NotKept, match=r"'dropping' would drop.*failOnDataLoss to false"):
        write(to, 0, value=[b"a"])
    client.create_subscription("dropping", "reader")
    parts = write(to, 0, value=[b"a"])
    client.unsubscribe("dropping", "reader")
    with pytest.raises(errors.NotKept):
        to.commit([parts])
    to = writer("value string", address=address, topic="dropping", failOnDataLoss="false")
    to.commit([write(to, 0, value=[b"a"])])
    assert client.describe("dropping").next == 1


def test_named_batch_is_written_once(client: blocking.Client, address: str) -> None:
    """PIPE-2: a function for foreachBatch that fails after its write is called again."""

    def put(version: str, topic: str, *rows: bytes) -> None:
        given = {"address": address, "topic": topic, "txnAppId": "app", "txnVersion": version}
        to = writer("value string", overwrite=False, **given)
        to.commit([write(to, 0, value=list(rows))])

    for _ in range(2):
        put("0", "named", b"a")
        put("0", "named.too", b"a")
    put("1", "named", b"b")
    with pytest.raises(errors.OldNumber):
        put("0", "named", b"a")
    with pytest.raises(errors.OtherContent):
        put("1", "named", b"other")
    assert values(client, "named") == [b"a", b"b"]
    assert values(client, "named.too") == [b"a"]


def test_frame_read_from_a_topic_can_be_written_unchanged(
    client: blocking.Client, address: str
) -> None:
    """The topic option overrides the column, and headers may have the Kafka format."""
    kafka = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    found = StructType()
    for name, kind in (("value", "binary"), ("topic", "string"), ("offset", "long")):
        found = found.add(name, kind)
    pairs = StructType().add("key", "string").add("value", "binary")
    found = found.add("headers", ArrayType(pairs)).add("timestampType", "integer")
    options = lower({"address": address, "topic": "back"})
    to = OncecastSource(options).writer(found, False)
    headers = pa.array([[{"key": "h", "value": b"v"}], [], None], kafka)
    rows = {"value": [b"a", b"b", b"c"], "topic": ["from"] * 3, "offset": [7, 8, 9]}
    to.commit([write(to, 0, **rows, headers=headers, timestampType=[0, 0, 0])])
    messages = [message for each in client.scan("back") for message in each.messages()]
    assert [each.offset for each in messages] == [0, 1, 2]
    assert [each.headers for each in messages] == [{"h": b"v"}, {}, {}]


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    process = Process("--own-group", "--data", str(tmp_path_factory.mktemp("ring") / "data"))
    yield f"127.0.0.1:{process.port}"
    assert process.end(signal.SIGTERM) == 0
    assert process.process.stderr is not None
    process.process.stderr.close()


def test_query_with_a_restored_checkpoint_on_a_ring_fails_for_all_topics(ring: str) -> None:
    """PIPE-2: query batches are compared in one place, not only per topic."""
    for batch in (0, 1):
        stream(ring, "many", batch, [b"%d" % batch], "one", to="first")
    with pytest.raises(errors.OldNumber):
        stream(ring, "many", 0, [b"0"], "two", to="second")
    with pytest.raises(errors.OtherContent):
        stream(ring, "many", 1, [b"0"], "two", to="second")
    stream(ring, "many", 1, [b"1"], "three", to="first")
    stream(ring, "many", 2, [b"2"], "three", to="second")
    with blocking.connect(ring) as client:
        assert values(client, "first") == [b"0", b"1"]
        assert values(client, "second") == [b"2"]


def test_error_names_the_permission_needed_by_a_query_on_a_ring(ring: str) -> None:
    """SVC-7"""
    denied = patch.object(blocking.Client, "publish_staged", side_effect=errors.Denied())
    with denied, pytest.raises(errors.Denied, match=r"put to topic 'spark/denied', whose owner"):
        stream(ring, "denied", 0, [b"0"], "one", to="denied")


def test_named_job_on_a_ring_puts_the_remaining_rows_after_a_crash(ring: str) -> None:
    """PIPE-2: the job dies between two topics, and a second run completes it."""
    given = {"address": ring, "txnAppId": "job", "txnVersion": "0"}

    def run(topics: int) -> None:
        to = writer("value string, topic string", overwrite=False, **given)
        names = [f"job.{number}" for number in range(5)]
        parts = write(to, 0, value=[b"row"] * 5, topic=names)
        calls = itertools.count()

        def dies(*arguments: Any, **options: Any) -> Any:
            if next(calls) > topics:  # the first call publishes no rows
                raise RuntimeError("the driver is killed")
            return publish_staged(*arguments, **options)

        publish_staged = blocking.Client.publish_staged
        with patch.object(blocking.Client, "publish_staged", dies):
            to.commit([parts])

    for topics in (2, 4):
        with pytest.raises(RuntimeError, match="killed"):
            run(topics)
    run(5)
    with blocking.connect(ring) as client:
        assert [values(client, f"job.{number}") for number in range(5)] == [[b"row"]] * 5
