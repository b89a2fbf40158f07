"""PIPE-1 PIPE-2 PIPE-3: use `format("oncecast")` in Spark itself."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncecast import Policy, blocking
from oncecast.spark.lag import LagListener, lag
from oncecast.spark.views import register_topics
from tests.spark.micro_batches import values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

KEEP = Policy(keep_all=True)
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectService$"


def test_rows_are_put_and_read_as_a_table(
    spark: SparkSession, client: blocking.Client, address: str
) -> None:
    for topic in ("to.a", "to.b"):
        client.create_topic(topic, KEEP)
    written = spark.sql(
        "select string(id) as value, binary('k') as key, map('h', binary('v')) as headers, "
        "if(id % 2 = 0, 'to.a', 'to.b') as topic from range(0, 10, 1, 2)"
    )
    written.write.format("oncecast").option("address", address).mode("append").save()
    frame = spark.read.format("oncecast").options(address=address, topicPattern="to[.].")
    rows = frame.option("includeHeaders", "true").load().orderBy("topic", "offset").collect()
    assert [(row.topic, row.offset) for row in rows] == [
        (topic, offset) for topic in ("to.a", "to.b") for offset in range(5)
    ]
    assert [int(row.value) for row in rows] == [*range(0, 10, 2), *range(1, 10, 2)]
    first = rows[0]
    assert (bytes(first.key), bytes(first.value)) == (b"k", b"0")
    assert {name: bytes(value) for name, value in first.headers.items()} == {"h": b"v"}
    assert first.producer.startswith("spark/")
    assert first.sequence == 0
    assert abs(first.timestamp.timestamp() - time.time()) < 600


def test_errors_reach_the_user_with_their_remedy(spark: SparkSession, address: str) -> None:
    """SVC-7"""
    topic = spark.read.format("oncecast").option("address", address)
    with pytest.raises(Exception, match="unknown option 'topc'; choose from address"):
        topic.options(topc="a").load()
    with pytest.raises(Exception, match=r"topic 'nowhere'.*; create"):
        spark.read.format("oncecast").options(address=address, topics="nowhere").load().collect()


def test_stream_resumes_and_a_repeated_micro_batch_adds_nothing(
    spark: SparkSession, client: blocking.Client, address: str, checkpoint: str
) -> None:
    """Act as if the driver had crashed between the sink's publish and Spark's commit."""
    for topic in ("in", "out"):
        client.create_topic(topic, KEEP)

    def run(first: int) -> None:
        client.put_many("in", [b"%d" % each for each in range(first, first + 50)])
        source = spark.readStream.format("oncecast").options(address=address, topics="in")
        frame = source.options(maxOffsetsPerTrigger="40", subscription="query").load()
        results = frame.selectExpr("concat('seen ', string(value)) as value").repartition(2)
        query = results.writeStream.format("oncecast").options(address=address, topic="out")
        query = query.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        query.start().awaitTermination()

    run(0)
    last = max(Path(checkpoint, "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for each in (last, last.with_name(f".{last.name}.crc")):
        each.unlink(missing_ok=True)
    run(50)
    assert sorted(values(client, "out")) == sorted(b"seen %d" % each for each in range(100))
    (held,) = client.describe("in").subscriptions
    assert (held.name, held.lag) == ("query", 0)


def test_query_topics_can_change_between_runs(
    spark: SparkSession, client: blocking.Client, address: str, checkpoint: str
) -> None:
    """One topic is added and another one deleted."""

    def run(topics: str, **options: str) -> set[int]:
        found: set[int] = set()
        source = spark.readStream.format("oncecast").options(address=address, topics=topics)
        frame = source.options(subscription="query", **options).load()
        query = frame.writeStream.foreachBatch(
            lambda rows, _: found.update(int(row.value) for row in rows.collect())
        )
        query = query.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        query.start().awaitTermination()
        return found

    for number, topic in enumerate(("change.a", "change.b")):
        client.create_topic(topic, KEEP)
        client.put(topic, b"%d" % number)
    assert run("change.a") == {0}
    assert run("change.a,change.b") == {1}
    client.delete_topic("change.a")
    client.put("change.b", b"2")
    assert run("change.a,change.b", failOnDataLoss="false") == {2}
    (held,) = client.describe("change.b").subscriptions
    assert held.lag == 0


def test_topics_are_read_and_written_in_sql(
    spark: SparkSession, client: blocking.Client, address: str
) -> None:
    for topic in ("sql.one", "sql.two"):
        client.create_topic(topic, KEEP)
    view = f"""create or replace temporary view texts (key string, value string)
        using oncecast options (address '{address}', topic 'sql.one')"""
    spark.sql(view)
    spark.sql("insert into texts values ('k', 'one'), (null, 'two')")
    spark.sql("insert into texts (value) select upper(value) from texts")
    query = "select key, value from texts"
    # The view reads the range that was planned first.
    assert set(spark.sql(query).collect()) == {("k", "one"), (None, "two")}
    spark.sql(view)
    later = {(None, "ONE"), (None, "TWO")}
    assert set(spark.sql(query).collect()) == {("k", "one"), (None, "two"), *later}
    assert register_topics(spark, r"sql[.].*", address=address) == ["sql.one", "sql.two"]
    query = "select count(*) as rows, max(offset) as last from `sql.one` where topic = 'sql.one'"
    assert spark.sql(query).collect() == [(4, 3)]
    for name in ("texts", "`sql.one`", "`sql.two`"):
        spark.catalog.dropTempView(name)


def test_catalog_table_is_refused_with_a_remedy(spark: SparkSession, address: str) -> None:
    """SVC-7: Spark does not pass table options to a Python source."""
    options = f"using oncecast options (address '{address}', topic 'sql.one')"
    remedy = "use CREATE TEMPORARY VIEW name USING oncecast"
    with pytest.raises(Exception, match=remedy):
        spark.sql(f"create table refused {options}")
    spark.sql(f"create table unread (value string) {options}")
    try:
        with pytest.raises(Exception, match=remedy):
            spark.table("unread").collect()
    finally:
        spark.sql("drop table unread")


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_queries_on_the_same_frame_get_all_their_rows(
    spark: SparkSession, client: blocking.Client, address: str, pushdown: str
) -> None:
    """Queries on one frame share a plan in Spark, so a query filter must not narrow it."""
    for topic in ("narrow.a", "narrow.b"):
        if client.create_topic(topic, KEEP):
            client.put_many(topic, [b"%d" % each for each in range(100)])
    setting = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(setting, "false")
    assert before is not None
    spark.conf.set(setting, pushdown)
    try:
        source = spark.read.format("oncecast").options(address=address, topicPattern="narrow[.].")
        frame = source.load()
        low, high = frame.where("offset < 3"), frame.where("topic = 'narrow.b' and offset >= 95")
        assert (low.count(), high.count(), frame.count()) == (6, 5, 200)
        assert low.union(high).count() == 11
        client.put("narrow.a", b"later")
        assert (frame.count(), source.load().count()) == (200, 201)
        client.delete_topic("narrow.a")
    finally:
        spark.conf.set(setting, before)


def test_kafka_connector_options_and_columns_work(
    spark: SparkSession, client: blocking.Client, address: str
) -> None:
    client.create_topic("moved", KEEP)
    for number in range(3):
        client.put("moved", b"%d" % number, key=b"k", headers={"h": b"v"})
    source = spark.read.format("oncecast").option("address", address).option("subscribe", "moved")
    source = source.option("startingOffsets", '{"moved": {"0": 1}}')
    frame = source.option("endingOffsets", '{"moved": {"0": -1}}').option("includeHeaders", "array")
    rows = frame.load()
    assert rows.selectExpr("headers[0].key", "string(headers[0].value)").distinct().collect() == [
        ("h", "v")
    ]
    rows.write.format("oncecast").option("address", address).mode("append").save()
    (_, _, _, again, last) = [
        message for each in client.scan("moved") for message in each.messages()
    ]
    assert (again.value, again.key, again.headers) == (b"1", b"k", {"h": b"v"})
    assert last.value == b"2"
    with pytest.raises(Exception, match="set option address to an oncecast node"):
        source.option("kafka.bootstrap.servers", address).load()


def test_progress_and_metrics_show_query_lag(
    spark: SparkSession, client: blocking.Client, address: str, checkpoint: str, tmp_path: Path
) -> None:
    """OPS-1"""
    client.create_topic("lagging", KEEP)
    client.put_many("lagging", [b"%d" % each for each in range(50)])
    listener = LagListener(tmp_path / "lag.prom")
    spark.streams.addListener(listener)
    source = spark.readStream.format("oncecast").options(address=address, topics="lagging")
    query = source.option("maxOffsetsPerTrigger", "20").load().writeStream.format("noop")
    query = query.option("checkpointLocation", checkpoint).queryName("lagging")
    try:
        running = query.trigger(availableNow=True).start()
        running.awaitTermination()
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        found = [lag(each) for each in running.recentProgress if each["numInputRows"]]
        assert [each["lagging"].messages for each in found] == [30, 10, 0]
        assert [each[""].messages for each in found] == [30, 10, 0]
        assert found[0]["lagging"].seconds > 0 == found[-1]["lagging"].seconds
    finally:
        spark.streams.removeListener(listener)
    assert "oncecast_spark_messages_behind" in (tmp_path / "lag.prom").read_text()


def test_query_from_an_older_checkpoint_ends_with_an_error(
    spark: SparkSession, client: blocking.Client, address: str, tmp_path: Path
) -> None:
    """PIPE-2: this holds even if the checkpoint is one batch older and the rows are equal."""
    client.create_topic("back.in", KEEP)

    def run(checkpoint: str, **options: str) -> None:
        client.put("back.in", b"equal")
        frame = spark.readStream.format("oncecast").options(address=address, topics="back.in")
        query = frame.load().select("value").writeStream.format("oncecast")
        query = query.options(address=address, topic="back.out", **options)
        query = query.option("checkpointLocation", str(tmp_path / checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()

    for copy in ("oldest", "older"):
        run("newest")
        shutil.copytree(tmp_path / "newest", tmp_path / copy)
    run("newest")
    with pytest.raises(Exception, match=r"published number 2 with different content"):
        run("older")
    with pytest.raises(Exception, match=r"below the last published number, 2"):
        run("oldest")
    run("newest")
    assert values(client, "back.out") == [b"equal"] * 6
    run("older", txnAppId="continued")
    assert values(client, "back.out") == [b"equal"] * 11


def test_topics_are_read_and_written_through_spark_connect(
    spark: SparkSession, client: blocking.Client, address: str, checkpoint: str
) -> None:
    """PIPE-6: the server runs in the session's JVM, with this process as its client."""
    from pyspark.sql.connect.session import SparkSession as Remote

    for topic in ("far.in", "far.out"):
        client.create_topic(topic, KEEP)
    port = getattr(getattr(spark._jvm, CONNECT), "MODULE$").localPort()
    remote = Remote.builder.remote(f"sc://127.0.0.1:{port}").create()
    try:
        rows = remote.sql("select string(id) as value from range(9)")
        sink = rows.write.format("oncecast").options(address=address, topic="far.in")
        sink.mode("append").save()
        frame = remote.readStream.format("oncecast").options(address=address, topics="far.in")
        query = frame.load().select("value").writeStream.format("oncecast")
        query = query.options(address=address, topic="far.out", checkpointLocation=checkpoint)
        running = query.trigger(availableNow=True).start()
        running.awaitTermination()
        table = remote.read.format("oncecast").options(address=address, topics="far.out").load()
        assert sorted(int(row.value) for row in table.collect()) == list(range(9))
        assert register_topics(remote, "far[.]out", address=address) == ["far.out"]
        assert remote.sql("select max(offset) from `far.out`").collect() == [(8,)]
        progress = running.lastProgress
        assert progress is not None
        assert lag(progress)["far.in"].messages == 0
    finally:
        remote.stop()
