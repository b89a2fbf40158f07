"""Define a minimal streaming source, which shows the cost of Spark itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

ROWS = 100


class Minimal(DataSource):
    """`format("minimal")`: one task of 100 rows per micro-batch."""

    @classmethod
    def name(cls) -> str:
        return "minimal"

    def schema(self) -> str:
        return "value binary"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return MinimalReader()


class MinimalReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:
        return {"next": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"next": start["next"] + ROWS}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(start["next"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": pa.array([bytes(93)] * ROWS, pa.binary())})
