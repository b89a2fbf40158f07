"""PIPE-5: the tutorial in docs/spark.md runs, and its statements about the sink hold."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from oncecast import Policy, blocking
from tests.docs.test_examples import examples
from tests.spark.micro_batches import values
from tools.check_docs import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.long

KEEP = Policy(keep_all=True)
Put = Callable[..., None]
Run = Callable[..., None]


@pytest.fixture
def put(spark: SparkSession, address: str) -> Put:
    """Return a function that writes the rows of an SQL query or a frame."""

    def write(rows: str | DataFrame, **options: Any) -> None:
        frame = spark.sql(rows) if isinstance(rows, str) else rows
        sink = frame.write.format("oncecast").options(address=address, **options)
        sink.mode("append").save()

    return write


@pytest.fixture
def run(spark: SparkSession, address: str, checkpoint: str) -> Run:
    """Return a function that runs a query until it has read all messages."""

    def write(
        source: str, target: str, *columns: str, at: str = checkpoint, **options: Any
    ) -> None:
        topic = spark.readStream.format("oncecast").options(address=address, topics=source)
        frame = topic.load().selectExpr(*(columns or ["value"]))
        query = frame.writeStream.format("oncecast").options(address=address, topic=target)
        query = query.options(**options).trigger(availableNow=True)
        (query.option("checkpointLocation", at) if at else query).start().awaitTermination()

    return write


def test_tutorial_examples_run(
    spark: SparkSession, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ROOT / "docs" / "spark.md"
    monkeypatch.chdir(tmp_path)
    text = examples(page).replace("127.0.0.1:7400", address)
    for name in ("loud.checkpoint", "slow.checkpoint", "totals.checkpoint"):
        text = text.replace(name, str(tmp_path / name))
    exec(compile(text, page, "exec", dont_inherit=True), {"__name__": page.stem})


# -- guarantees --


def uncommit(checkpoint: str) -> None:
    """Delete Spark's last commit, as if the driver had crashed after the sink's publish."""
    last = max(Path(checkpoint, "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for each in (last, last.with_name(f".{last.name}.crc")):
        each.unlink(missing_ok=True)


def test_replaying_random_values_adds_nothing_if_the_checkpoint_is_local(
    client: blocking.Client, run: Run, checkpoint: str
) -> None:
    client.create_topic("random.in", KEEP)
    for _ in range(2):
        client.put("random.in", b"a")
        run("random.in", "random.out", "string(rand()) as value")
        uncommit(checkpoint)
    run("random.in", "random.out", "string(rand()) as value")
    assert len(values(client, "random.out")) == 2


def test_replaying_random_values_from_a_remote_checkpoint_fails_or_is_skipped(
    spark: SparkSession, client: blocking.Client, run: Run, tmp_path: Path
) -> None:
    """A session setting hides the checkpoint from the sink, like a remote checkpoint."""
    client.create_topic("remote.in", KEEP)
    client.put("remote.in", b"a")
    setting, kept = "spark.sql.streaming.checkpointLocation", tmp_path / "kept"
    spark.conf.set(setting, str(kept))
    try:
        column, named = "string(rand()) as value", {"at": "", "queryName": "remote"}
        run("remote.in", "remote.out", column, **named)
        uncommit(str(kept / "remote"))
        with pytest.raises(
            Exception, match=r"published number 0 with different content.*set option replay to"
        ):
            run("remote.in", "remote.out", column, **named)
        run("remote.in", "remote.out", column, replay="skip", **named)
    finally:
        spark.conf.unset(setting)
    assert len(values(client, "remote.out")) == 1


def test_earlier_run_fails_if_a_newer_run_has_taken_over(
    spark: SparkSession,
    client: blocking.Client,
    address: str,
    run: Run,
    checkpoint: str,
    tmp_path: Path,
) -> None:
    """The first run waits in its second batch until the other run has published that batch."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    opener = os.open(gate, os.O_RDWR)

    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if batch.column("value").to_pylist() == [b"b"]:
                with gate.open("rb", buffering=0) as opened:
                    opened.read(1)
            yield batch

    client.create_topic("two.in", KEEP)
    client.put("two.in", b"a")
    topic = spark.readStream.format("oncecast").options(address=address, topics="two.in")
    slow = topic.load().select("value").mapInArrow(wait, "value binary")
    query = slow.writeStream.format("oncecast").options(address=address, topic="two.out")
    query = query.options(txnAppId="two", checkpointLocation=checkpoint)
    first = query.start()
    first.processAllAvailable()
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    (copy / ".metadata.crc").unlink()
    (copy / "metadata").write_text(
        json.dumps({"id": str(uuid4())})
    )  # Spark sees this as another query
    client.put("two.in", b"b")
    run("two.in", "two.out", at=str(copy), txnAppId="two")
    os.write(opener, b".")
    os.close(opener)
    with pytest.raises(Exception, match="a newer run has taken over source 'spark/two'; stop"):
        first.awaitTermination()
    assert values(client, "two.out") == [b"a", b"b"]


def test_failed_job_puts_nothing_and_a_repeated_job_puts_its_rows_again(
    client: blocking.Client, put: Put
) -> None:
    client.create_topic("job", KEEP)
    rows = "select if(id = 9, raise_error('broken'), string(id)) as value from range(0, 10, 1, 2)"
    with pytest.raises(Exception, match="broken"):
        put(rows, topic="job")
    assert values(client, "job") == []
    for _ in range(2):
        put("select 'row' as value", topic="job")
    assert values(client, "job") == [b"row"] * 2


def test_deleted_checkpoint_starts_the_query_again(
    client: blocking.Client, run: Run, tmp_path: Path
) -> None:
    client.create_topic("again.in", KEEP)
    client.put("again.in", b"a")
    for number in range(2):
        run("again.in", "again.out", at=str(tmp_path / f"new{number}"))
    assert values(client, "again.out") == [b"a"] * 2
    run("again.in", "again.named", at=str(tmp_path / "named"), txnAppId="app")
    with pytest.raises(Exception, match=r"has already published number .* with different content"):
        run("again.in", "again.named", at=str(tmp_path / "other"), txnAppId="app")
    assert values(client, "again.named") == [b"a"]


def test_rows_in_a_partition_keep_their_order(client: blocking.Client, put: Put) -> None:
    put("select string(id) as value from range(0, 1000, 1, 1)", topic="kept.order")
    assert values(client, "kept.order") == [b"%d" % each for each in range(1000)]


# -- options and columns --


def test_missing_topic_is_created_with_the_policy(client: blocking.Client, put: Put) -> None:
    put("select 'a' as value", topic="made")
    put("select 'a' as value", topic="made.aged", topicPolicy="7d")
    assert client.describe("made").policy == KEEP
    assert client.describe("made.aged").policy == Policy(age_us=7 * 86_400_000_000)
    with pytest.raises(Exception, match="set option createTopics to true"):
        put("select 'a' as value", topic="absent.too", createTopics="false")


def test_topic_that_would_drop_the_rows_is_refused(
    client: blocking.Client, put: Put, run: Run
) -> None:
    client.create_topic("drops")
    with pytest.raises(Exception, match="topic 'drops' would drop the messages"):
        put("select 'a' as value", topic="drops")
    client.create_topic("drops.in", KEEP)
    client.put("drops.in", b"a")
    with pytest.raises(Exception, match="topic 'drops' would drop the messages"):
        run("drops.in", "drops")
    put("select 'a' as value", topic="drops", failOnDataLoss="false")
    client.create_subscription("drops", "reader")
    put("select 'b' as value", topic="drops")
    assert values(client, "drops") == [b"b"]


def test_sink_accepts_documented_columns_and_rejects_others(
    spark: SparkSession, client: blocking.Client, put: Put
) -> None:
    put(
        "select binary('v') as value, 'k' as key, map('h', binary('1')) as headers, "
        "timestamp_millis(1500) as timestamp, 'columns' as topic"
    )
    put(
        "select 'v' as value, array(struct('h' as key, binary('1') as value)) as headers",
        topic="columns",
        zstd="1",
    )
    one, other = (message for each in client.scan("columns") for message in each.messages())
    assert (one.key, one.value, one.timestamp, one.headers) == (b"k", b"v", 1_500_000, {"h": b"1"})
    assert (other.key, other.value, other.headers) == (None, b"v", {"h": b"1"})
    assert abs(other.timestamp / 1e6 - time.time()) < 600
    for rows, error in {
        "select 'v' as value, 1 as more": "column 'more' is not supported",
        "select 'k' as key": "column `value` is missing",
        "select 1 as value": "column value has type int; cast it to binary or string",
        "select string(null) as value": "contains nulls",
    }.items():
        with pytest.raises(Exception, match=error):
            put(rows, topic="columns")
    with pytest.raises(Exception, match="set option topic, or add a column `topic`"):
        put("select 'v' as value")


def test_frame_read_from_a_topic_can_be_written_unchanged(
    spark: SparkSession, client: blocking.Client, address: str, put: Put
) -> None:
    client.create_topic("read", KEEP)
    client.put("read", b"v", key=b"k", headers={"h": b"1"})
    topic = spark.read.format("oncecast").options(address=address, topics="read")
    put(topic.option("includeHeaders", "true").load(), topic="read.back")
    (found,) = (message for each in client.scan("read.back") for message in each.messages())
    assert (found.key, found.value, found.headers) == (b"k", b"v", {"h": b"1"})


def test_sink_refuses_update_and_complete_modes(
    spark: SparkSession, client: blocking.Client, address: str, tmp_path: Path
) -> None:
    """A stream appends. Spark itself refuses update mode; the sink refuses complete mode."""
    client.create_topic("mode.in", KEEP)
    client.put("mode.in", b"a")
    topic = spark.readStream.format("oncecast").options(address=address, topics="mode.in")
    counts = topic.load().groupBy("value").count().selectExpr("value")
    for mode, error in {
        "update": "does not support Update mode",
        "complete": 'mode "overwrite" is not supported; use "append"',
    }.items():
        query = counts.writeStream.format("oncecast").outputMode(mode)
        query = query.options(address=address, topic="mode.out")
        query = query.option("checkpointLocation", str(tmp_path / mode))
        with pytest.raises(Exception, match=error):
            query.trigger(availableNow=True).start().awaitTermination()


# -- named batches --


def test_each_application_version_is_written_once(client: blocking.Client, put: Put) -> None:
    for version, count in enumerate((1, 0, 2)):
        for _ in range(2):
            rows = f"select string(id) as value from range({count})"
            put(rows, topic="app", txnAppId="app", txnVersion=version)
    assert sorted(values(client, "app")) == [b"0", b"0", b"1"]
    put("select 'a' as value", topic="app.too", txnAppId="app", txnVersion=0)
    assert values(client, "app.too") == [b"a"]
    for version, error in {1: "number 1 .* is below the last", 2: "different content"}.items():
        with pytest.raises(Exception, match=error):
            put("select 'x' as value", topic="app", txnAppId="app", txnVersion=version)
    with pytest.raises(Exception, match="set both txnAppId and txnVersion"):
        put("select 'x' as value", topic="app", txnAppId="app")
