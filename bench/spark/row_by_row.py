"""Define a naive source and sink, which handle one tuple or row per message."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from time import time_ns
from uuid import uuid4

from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from oncecast.spark.options import SinkOptions
from oncecast.spark.register import OncecastSource
from oncecast.spark.sink import Parts, publish, reported
from oncecast.spark.source import BatchReader, Piece
from oncecast.spark.source_options import COLUMNS, SourceOptions
from oncecast.spark.tasks import slices
from oncecast.wire import batch

PART = 10_000  # number of rows per part


class RowByRow(OncecastSource):
    """`format("row_by_row")`, with the same node, partitions and staging as the real source."""

    @classmethod
    def name(cls) -> str:
        return "row_by_row"

    def reader(self, schema: StructType) -> DataSourceReader:  # type: ignore[override]
        return TupleReader(SourceOptions.of(self.options, streaming=False), COLUMNS)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # type: ignore[override]
        return RowWriter(SinkOptions.of(self.options, streaming=False))


class TupleReader(BatchReader):
    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        assert isinstance(partition, Piece)
        (range_,) = partition.ranges
        with self._options.node.connect() as client:
            for each in slices(client, range_, fail_on_loss=True):
                for one in each.messages():
                    time = datetime.fromtimestamp(one.timestamp / 1e6, UTC)
                    named = (one.topic, one.offset, time, one.producer, one.sequence)
                    yield (one.key, one.value, *named)


class RowWriter(DataSourceWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._source = f"spark/{uuid4().hex}"

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        assert self._options.topic is not None
        names: list[str] = []
        with self._options.node.connect() as client:
            for values in parted(bytes(row.value) for row in iterator):
                names.append(uuid4().hex)
                packed = batch.encode(values, timestamps=time_ns() // 1000)
                client.stage(self._source, 0, names[-1], self._options.topic, len(values), packed)
        return Parts(self._source, 0, tuple(names), (self._options.topic,) * len(names))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with self._options.node.connect() as client:
            publish(client, self._options, reported(messages))
            client.close_source(self._source)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """End the benchmark on a failure."""


def parted(values: Iterator[bytes]) -> Iterator[list[bytes]]:
    gathered: list[bytes] = []
    for each in values:
        gathered.append(each)
        if len(gathered) == PART:
            yield gathered
            gathered = []
    if gathered:
        yield gathered
