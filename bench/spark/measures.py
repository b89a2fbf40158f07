"""Define the measures; each round runs all of them in turns.

All read the same messages from the same node; Parquet has them in files that Spark wrote.
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
from bench.spark.row_by_row import RowByRow
from oncecast import Policy, blocking

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

SIZE = 100
CHUNK = 100_000  # messages put at a time
SLOW = 20  # single rows get one in this many messages
TRIGGER = 500_000  # messages a micro-batch
QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}

Way = Callable[[], float]  # messages per second


@dataclass
class Bench:
    spark: SparkSession
    address: str
    root: Path
    messages: int
    rounds: int

    def __post_init__(self) -> None:
        self.spark.dataSource.register(RowByRow)
        self._made = 0

    # -- what is read --

    def fill(self) -> None:
        """Return values that neither compression nor a dictionary makes smaller."""
        with blocking.connect(self.address) as client:
            client.create_topic("full", Policy(keep_all=True))
            for at in range(0, self.messages, CHUNK):
                count = min(CHUNK, self.messages - at)
                data = os.urandom(count * SIZE)
                client.put_many("full", [data[each : each + SIZE] for each in starts(count)])
        say(f"{self.messages:,} messages of {SIZE} B put")
        self.topic().load().write.parquet(str(self.root / "parquet"))

    def topic(self, form: str = "oncecast", until: int | None = None) -> DataFrameReader:
        reader = self.spark.read.format(form).options(address=self.address, topics="full")
        if until is not None:
            reader = reader.option("endingOffsets", f'{{"full": {until}}}')
        return reader

    # -- ways --

    def read_topic(self) -> float:
        return self._read(self.topic().load(), self.messages)

    def read_parquet(self) -> float:
        return self._read(self.spark.read.parquet(str(self.root / "parquet")), self.messages)

    def read_tuples(self) -> float:
        count = self.messages // SLOW
        return self._read(self.topic("row_by_row", count).load(), count)

    def _read(self, frame: DataFrame, count: int) -> float:
        began = perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return count / (perf_counter() - began)

    def stream_topic(self) -> float:
        """Measure from the start of the query to its end."""
        reader = self.spark.readStream.format("oncecast")
        reader = reader.options(address=self.address, topics="full", maxOffsetsPerTrigger=TRIGGER)
        self._made += 1
        began = perf_counter()
        query = reader.load().writeStream.format("noop").trigger(availableNow=True)
        running = query.option("checkpointLocation", str(self.root / f"c{self._made}")).start()
        running.awaitTermination()
        took = perf_counter() - began
        read = sum(each["numInputRows"] for each in running.recentProgress)
        if read != self.messages:
            raise Failed(f"the stream read {read} of {self.messages} messages")
        return self.messages / took

    def write_arrow(self) -> float:
        return self._write("oncecast", self.messages // 2)

    def write_rows(self) -> float:
        return self._write("row_by_row", self.messages // SLOW)

    def _write(self, form: str, count: int) -> float:
        """Write the rows of a Parquet file to a topic."""
        frame = self.spark.read.parquet(str(self.root / "parquet")).select("value")
        frame = frame.where(f"offset < {count}")
        self._made += 1
        topic = f"written{self._made}"
        with blocking.connect(self.address) as client:
            client.create_topic(topic, Policy(keep_all=True))
            began = perf_counter()
            sink = frame.write.format(form).options(address=self.address, topic=topic)
            sink.mode("append").save()
            took = perf_counter() - began
            put = client.describe(topic).next
            client.delete_topic(topic)
        if put != count:
            raise Failed(f"{put} of {count} messages were put")
        return count / took


def starts(count: int) -> range:
    return range(0, count * SIZE, SIZE)


def side_by_side(bench: Bench, ways: dict[str, Way], targets: dict[str, float]) -> Iterator[Figure]:
    """Compare ways round by round; the first way is ours."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(bench.rounds + 1):
        rates = {name: way() for name, way in ways.items()}
        label = f"round {number} of {bench.rounds}" if number else "warm-up"
        say(f"{label}: " + ", ".join(f"{name} {rate:,.0f}/s" for name, rate in rates.items()))
        if number:
            for name, rate in rates.items():
                found[name].append(rate)
    for name, each in found.items():
        yield Figure(f"{name} {spread(each, ',.0f')}", median(each), "msg/s")
    ours = next(iter(ways))
    for name, target in targets.items():
        ratios = [one / other for one, other in zip(found[ours], found[name], strict=True)]
        what = f"{ours}, beside {name} {spread(ratios, '.2f')}"
        yield Figure(what, median(ratios), "", f">= {target:g}", median(ratios) >= target)


def spread(values: list[float], form: str) -> str:
    return f"({min(values):{form}} to {max(values):{form}})"


def read(bench: Bench) -> Iterator[Figure]:
    ways = {
        "read a topic": bench.read_topic,
        "read Parquet": bench.read_parquet,
        "read tuples": bench.read_tuples,
    }
    return side_by_side(bench, ways, {"read Parquet": 0.6, "read tuples": 3})


def stream(bench: Bench) -> Iterator[Figure]:
    ways = {"stream a topic": bench.stream_topic, "read a topic": bench.read_topic}
    return side_by_side(bench, ways, {"read a topic": 0.3})


def write(bench: Bench) -> Iterator[Figure]:
    ways = {"write a topic": bench.write_arrow, "write rows": bench.write_rows}
    return side_by_side(bench, ways, {"write rows": 5})
