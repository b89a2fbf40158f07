"""A model of a streaming query that may crash at any step, in one process and without Spark.

Spark records the end of a micro-batch, lets tasks read and write it, lets the sink commit, and
records that it is done. A restarted query continues after the last completed micro-batch, with the
recorded end. Tasks fail and are repeated; some attempts run at the same time.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import BinaryType, StructType

from oncecast import Policy, blocking
from oncecast.spark import sink
from oncecast.spark.register import OncecastSource

TASKS = 2
ROWS = 9  # passed to the sink together
WRITTEN = StructType().add("value", BinaryType())


class Died(Exception):
    """The driver or a task has crashed."""


class Task(NamedTuple):
    """The context that a task gets from Spark."""

    partition: int
    query: str
    batch: int
    run: str = ""  # a new one after each restart of the driver

    def partitionId(self) -> int:  # noqa: N802  # the name in Spark
        return self.partition

    def getLocalProperty(self, name: str) -> str:  # noqa: N802
        known = {"sql.streaming.queryId": self.query, "streaming.sql.batchId": self.batch}
        return str({**known, "spark.jobGroup.id": self.run}[name])


@dataclass
class Checkpoint:
    """The state that survives a restart of the driver."""

    query: str
    ends: list[dict[str, Any]] = field(default_factory=list)
    done: int = 0


class Driver:
    """A query from topics to a topic until it crashes, with probability `risk` at each step."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        source: dict[str, str],
        written: dict[str, str],
        rng: Random,
        risk: float = 0.0,
    ) -> None:
        self._checkpoint, self._rng, self._risk = checkpoint, rng, risk
        self._reader = OncecastSource(lower(source)).streamReader(StructType())
        self._written = lower(written)
        self._run = uuid4().hex

    def run(self) -> None:
        """Run until all messages are read."""
        try:
            while self._has_more():
                self._micro_batch()
        finally:
            self._reader.stop()

    def _may_die(self, times: int = 1) -> None:
        if self._rng.random() < times * self._risk:
            raise Died

    def _has_more(self) -> bool:
        kept, reader = self._checkpoint, self._reader
        if kept.done < len(kept.ends):
            return True
        start = self._start()
        end = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
        if end == start:
            return False
        self._may_die()
        kept.ends.append(end)
        return True

    def _start(self) -> dict[str, Any]:
        kept = self._checkpoint
        return kept.ends[kept.done - 1] if kept.done else self._reader.initialOffset()

    def _micro_batch(self) -> None:
        self._may_die()
        kept, number = self._checkpoint, self._checkpoint.done
        pieces = self._reader.partitions(self._start(), kept.ends[number])
        rows = [row for piece in pieces for row in read(self._reader, piece)]
        messages = [self._task(number, at, rows[at::TASKS]) for at in range(TASKS)]
        self._may_die()
        OncecastSource(self._written).streamWriter(WRITTEN, False).commit([*messages], number)
        self._may_die(times=3)  # between the sink's publish and Spark's commit
        kept.done += 1
        self._reader.commit(kept.ends[number])

    def _task(self, number: int, partition: int, rows: list[bytes]) -> WriterCommitMessage:
        """Run the attempts in random order. One of the successful attempts wins."""
        finished: list[WriterCommitMessage] = []
        while not finished or self._rng.random() < 0.2:
            self._rng.shuffle(rows)  # a Spark shuffle does not preserve order
            try:
                finished.append(self._attempt(number, partition, rows))
            except Died:
                continue
        self._may_die()
        return self._rng.choice(finished)

    def _attempt(self, number: int, partition: int, rows: list[bytes]) -> WriterCommitMessage:
        def given() -> Iterator[pa.RecordBatch]:
            for at in range(0, len(rows), ROWS):
                yield pa.record_batch({"value": rows[at : at + ROWS]})
                if self._rng.random() < 0.1:
                    raise Died

        writer = pickled(OncecastSource(self._written).streamWriter(WRITTEN, False))
        task = Task(partition, self._checkpoint.query, number, self._run)
        with patch.object(sink, "task", lambda: task):
            message: WriterCommitMessage = pickled(writer.write(given()))
            return message


def lower(options: dict[str, str]) -> dict[str, str]:
    """Return options with lower-case names, as Spark passes them."""
    return {name.lower(): value for name, value in options.items()}


def pickled(part: Any) -> Any:
    """Return a copy as a task gets it."""
    return pickle.loads(pickle.dumps(part))


def read(reader: Any, piece: Any) -> Iterator[bytes]:
    for batch in pickled(reader).read(pickled(piece)):
        yield from batch.column("value").to_pylist()


def values(client: blocking.Client, topic: str) -> list[bytes]:
    return [message.value for each in client.scan(topic) for message in each.messages()]


def storm(address: str, name: str, seed: int, **options: str) -> None:
    """Crash the driver repeatedly while messages arrive, and check that each result exists once."""
    rng = Random(seed)
    source = {"address": address, "topics": f"{name}.in", "maxOffsetsPerTrigger": "70", **options}
    written = {"address": address, "topic": f"{name}.out"}
    checkpoint = Checkpoint(f"query.{name}")
    put = 0
    with blocking.connect(address) as client:
        for topic in (f"{name}.in", f"{name}.out"):
            client.create_topic(topic, Policy(keep_all=True))
        for risk in (0.1, 0.2, 0.1, 0.2, 0.1, 0.0):
            client.put_many(f"{name}.in", [b"%d" % each for each in range(put, put + 50)])
            put += 50
            try:
                Driver(checkpoint, source, written, rng, risk).run()
            except Died:
                continue
        found = Counter(values(client, f"{name}.out"))
    assert found == Counter(b"%d" % each for each in range(put))
