"""Define the measures, which take turns in each round.

All of them read the same messages from the same node. Parquet files contain the same messages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from bench.cost.node import Figure
from bench.peers.peer import Failed, say
from bench.spark.minimal import Minimal
from bench.spark.row_by_row import RowByRow
from oncecast import Policy, blocking

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SIZE = 100
CHUNK = 100_000  # number of messages per put
SLOW = 20  # the row-by-row source and sink get one in this many messages
FEW = 100  # a selective query reads one in this many messages
TRIGGER = 500_000  # number of messages per micro-batch
SMALL = 100  # number of messages per small micro-batch
MICRO_BATCHES = 60  # number of small micro-batches per run; the first third is a warm-up
QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.authenticate.socketTimeout": "120s",  # workers start slowly on a busy machine
}
NOTHING = "noop"  # a format of Spark that drops all rows

Way = Callable[[], float]  # returns messages per second, or another rate


def random_values(first: int, count: int) -> list[bytes]:
    """Return values that neither compression nor a dictionary can shrink."""
    data = os.urandom(count * SIZE)
    return [data[at : at + SIZE] for at in range(0, count * SIZE, SIZE)]


def json_values(first: int, count: int) -> list[bytes]:
    """Return orders of about 93 bytes."""
    return [
        b'{"order":%d,"customer":"c%06d","item":"teapot-%03d","quantity":%d,"price":%d.%02d,"paid":%s}'
        % (at, at * 7919 % 1_000_000, at % 500, at % 9 + 1, at % 90 + 10, at % 100, TRUTH[at % 3])
        for at in range(first, first + count)
    ]


TRUTH = (b"true", b"true", b"false")
VALUES = {"random": random_values, "json": json_values}


@dataclass
class Bench:
    spark: SparkSession
    address: str
    root: Path
    messages: int
    rounds: int

    def __post_init__(self) -> None:
        for source in (RowByRow, Minimal):
            self.spark.dataSource.register(source)
        self._made = 0

    # -- what is read --

    def fill(self, topic: str) -> None:
        """Put messages, and write the same messages to Parquet."""
        if (self.root / topic).exists():
            return
        with blocking.connect(self.address) as client:
            client.create_topic(topic, Policy(keep_all=True))
            for at in range(0, self.messages, CHUNK):
                values = VALUES[topic](at, min(CHUNK, self.messages - at))
                client.put_many(topic, values)
        say(f"{self.messages:,} {topic} messages put")
        self.topic(topic).load().write.parquet(str(self.root / topic))

    def topic(self, topic: str, form: str = "oncecast", **options: str) -> DataFrameReader:
        return self.spark.read.format(form).options(address=self.address, topics=topic, **options)

    def files(self, topic: str) -> DataFrame:
        return self.spark.read.parquet(str(self.root / topic))

    # -- ways to read --

    def read_topic(self, topic: str) -> float:
        return self._read(self.topic(topic).load(), self.messages)

    def read_parquet(self, topic: str) -> float:
        return self._read(self.files(topic), self.messages)

    def read_tuples(self) -> float:
        count = self.messages // SLOW
        ending = f'{{"random": {count}}}'
        return self._read(self.topic("random", "row_by_row", endingOffsets=ending).load(), count)

    def read_few(self) -> float:
        """Return selective queries per second."""
        first = self.messages // 2
        ends = {"startingOffsets": first, "endingOffsets": first + self.messages // FEW}
        offsets = {name: f'{{"json": {at}}}' for name, at in ends.items()}
        return self._read(self.topic("json", **offsets).load(), 1)

    def read_all(self) -> float:
        """Return full reads per second."""
        return self._read(self.topic("json").load(), 1)

    def _read(self, frame: DataFrame, count: int) -> float:
        began = perf_counter()
        frame.write.format(NOTHING).mode("overwrite").save()
        return count / (perf_counter() - began)

    def count_topic(self) -> float:
        return self._count(self.topic("json", columns="offset").load())

    def count_values(self) -> float:
        return self._count(self.topic("json").load())

    def count_parquet(self) -> float:
        return self._count(self.files("json"))

    def _count(self, frame: DataFrame) -> float:
        began = perf_counter()
        count = frame.count()
        if count != self.messages:
            raise Failed(f"expected {self.messages} rows, found {count}")
        return self.messages / (perf_counter() - began)

    # -- ways to stream --

    def stream_topic(self) -> float:
        """Return the messages per second, from the start of the query to its end."""
        reader = self.spark.readStream.format("oncecast")
        reader = reader.options(address=self.address, topics="random", maxOffsetsPerTrigger=TRIGGER)
        began = perf_counter()
        query = reader.load().writeStream.format(NOTHING).trigger(availableNow=True)
        running = query.option("checkpointLocation", self._checkpoint()).start()
        running.awaitTermination()
        took = perf_counter() - began
        read = sum(each["numInputRows"] for each in running.recentProgress)
        if read != self.messages:
            raise Failed(
                f"expected the stream to read {self.messages} messages, but it read {read}"
            )
        return self.messages / took

    def small_to_nothing(self) -> float:
        return self._small(self._small_source().writeStream.format(NOTHING))

    def small_to_topic(self) -> float:
        """Return small micro-batches per second."""
        self._made += 1
        sink = self._small_source().select("value").writeStream.format("oncecast")
        return self._small(sink.options(address=self.address, topic=f"small{self._made}"))

    def rate_to_nothing(self) -> float:
        rate = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", SMALL)
        return self._small(rate.load().writeStream.format(NOTHING))

    def minimal_to_nothing(self) -> float:
        """Return the rate of a minimal Python source, which is an upper bound."""
        return self._small(
            self.spark.readStream.format("minimal").load().writeStream.format(NOTHING)
        )

    def _small_source(self) -> DataFrame:
        reader = self.spark.readStream.format("oncecast")
        options = {"address": self.address, "topics": "json", "maxOffsetsPerTrigger": str(SMALL)}
        return reader.options(**options).load()

    def _small(self, query: DataStreamWriter) -> float:
        running = query.option("checkpointLocation", self._checkpoint()).start()
        while len(running.recentProgress) < MICRO_BATCHES and running.isActive:
            running.awaitTermination(1)
        running.stop()
        took = [int(each["durationMs"]["triggerExecution"]) for each in running.recentProgress]
        return 1000 / median(took[MICRO_BATCHES // 3 : MICRO_BATCHES])

    def _checkpoint(self) -> str:
        self._made += 1
        return str(self.root / f"checkpoint{self._made}")

    # -- ways to write --

    def write_arrow(self, **options: str) -> float:
        return self._write("oncecast", self.messages // 2, **options)

    def write_rows(self) -> float:
        return self._write("row_by_row", self.messages // SLOW)

    def write_parquet(self) -> float:
        count = self.messages // 2
        self._made += 1
        began = perf_counter()
        self._written(count).write.parquet(str(self.root / f"written{self._made}"))
        return count / (perf_counter() - began)

    def _written(self, count: int) -> DataFrame:
        return self.files("json").where(f"offset < {count}").select("value")

    def _write(self, form: str, count: int, **options: str) -> float:
        """Write the rows of a Parquet file to a topic. Return the rows per second."""
        self._made += 1
        topic = f"written{self._made}"
        with blocking.connect(self.address) as client:
            client.create_topic(topic, Policy(keep_all=True))
            began = perf_counter()
            sink = self._written(count).write.format(form)
            sink.options(address=self.address, topic=topic, **options).mode("append").save()
            took = perf_counter() - began
            put = client.describe(topic).next
            client.delete_topic(topic)
        if put != count:
            raise Failed(f"expected {count} messages in the topic, found {put}")
        return count / took


def side_by_side(
    bench: Bench, ways: dict[str, Way], targets: dict[str, float], unit: str = "msg/s"
) -> Iterator[Figure]:
    """Compare the ways round by round. The first way is ours."""
    form = ",.0f" if unit == "msg/s" else ".2f"
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(bench.rounds + 1):
        rates = {name: way() for name, way in ways.items()}
        label = f"round {number} of {bench.rounds}" if number else "warm-up"
        say(f"{label}: " + ", ".join(f"{name} {rate:{form}}/s" for name, rate in rates.items()))
        if number:
            for name, rate in rates.items():
                found[name].append(rate)
    for name, each in found.items():
        yield Figure(f"{name} {spread(each, form)}", median(each), unit)
    ours = next(iter(ways))
    for name, target in targets.items():
        ratios = [one / other for one, other in zip(found[ours], found[name], strict=True)]
        what = f"{ours}, beside {name} {spread(ratios, '.2f')}"
        yield Figure(what, median(ratios), "", f">= {target:g}", median(ratios) >= target)


def spread(values: list[float], form: str) -> str:
    return f"({min(values):{form}} to {max(values):{form}})"


def read(bench: Bench) -> Iterator[Figure]:
    bench.fill("random")
    ways = {
        "read random bytes": lambda: bench.read_topic("random"),
        "read Parquet": lambda: bench.read_parquet("random"),
        "read tuples": bench.read_tuples,
    }
    return side_by_side(bench, ways, {"read Parquet": 0.75, "read tuples": 3})


def json(bench: Bench) -> Iterator[Figure]:
    bench.fill("json")
    ways = {
        "read JSON": lambda: bench.read_topic("json"),
        "read Parquet": lambda: bench.read_parquet("json"),
    }
    return side_by_side(bench, ways, {"read Parquet": 0.55})


def few(bench: Bench) -> Iterator[Figure]:
    bench.fill("json")
    ways = {"read a hundredth": bench.read_few, "read everything": bench.read_all}
    return side_by_side(bench, ways, {"read everything": 10}, unit="queries/s")


def count(bench: Bench) -> Iterator[Figure]:
    bench.fill("json")
    ways = {
        "count offsets": bench.count_topic,
        "count Parquet": bench.count_parquet,
        "count all columns": bench.count_values,
    }
    return side_by_side(bench, ways, {"count Parquet": 0.5, "count all columns": 2})


def stream(bench: Bench) -> Iterator[Figure]:
    bench.fill("random")
    ways = {
        "stream a topic": bench.stream_topic,
        "read a topic": lambda: bench.read_topic("random"),
    }
    return side_by_side(bench, ways, {"read a topic": 0.45})


def small(bench: Bench) -> Iterator[Figure]:
    bench.fill("json")
    rate = {"rate to nothing": bench.rate_to_nothing}
    minimal = {"a minimal source in Python to nothing": bench.minimal_to_nothing}
    for ways in (
        {"topic to nothing": bench.small_to_nothing, **rate, **minimal},
        {"topic to topic": bench.small_to_topic, **rate},
    ):
        targets = dict.fromkeys(list(ways)[1:], 1 / 1.3)
        yield from side_by_side(bench, ways, targets, unit="micro-batches/s")


def write(bench: Bench) -> Iterator[Figure]:
    bench.fill("json")
    ways = {
        "write a topic": bench.write_arrow,
        "write with zstd 1": lambda: bench.write_arrow(zstd="1"),
        "write Parquet": bench.write_parquet,
        "write rows": bench.write_rows,
    }
    return side_by_side(bench, ways, {"write Parquet": 0.6, "write rows": 5})


PARTS = (read, json, few, count, stream, small, write)
