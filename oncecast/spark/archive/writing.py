"""Write messages to staged Parquet files, one per day. Tasks run this code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from oncecast.spark.archive.values import File, sync
from oncecast.wire.batch_arrow import SCHEMA

OPEN_MAX = 16  # maximum number of files that one task writes at a time
DAY = 86_400_000_000  # microseconds
EPOCH = date(1970, 1, 1)
FIRST_DAY, LAST_DAY = (date.min - EPOCH).days, (date.max - EPOCH).days


class Writer:
    """Writes batches with the columns of SCHEMA to files named after this task attempt."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # Path and writer of each open file, by day since 1970.
        self._open: dict[int, tuple[str, pq.ParquetWriter]] = {}
        self.files: list[File] = []

    def write(self, batch: pa.RecordBatch) -> None:
        for day, rows in by_day(batch):
            if day not in self._open:
                if len(self._open) == OPEN_MAX:
                    self._finish(next(iter(self._open)))
                name = uuid4().hex
                self._open[day] = (
                    name,
                    pq.ParquetWriter(self._path(name), SCHEMA, compression="zstd"),
                )
            self._open[day][1].write_batch(rows)

    def close(self) -> list[File]:
        """Finish all files, and return all files that were written."""
        for day in list(self._open):
            self._finish(day)
        return self.files

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.part"

    def _finish(self, day: int) -> None:
        name, writer = self._open.pop(day)
        writer.close()
        path = self._path(name)
        sync(path)
        rows = pq.read_metadata(path).num_rows
        known = FIRST_DAY <= day <= LAST_DAY
        text = (EPOCH + timedelta(day)).isoformat() if known else None
        self.files.append(File(self._directory.name, name, text, rows, path.stat().st_size))


def by_day(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield each day's messages, and the day as a number since 1970."""
    times = batch["timestamp"].cast(pa.int64())
    days = pc.divide(times, DAY)
    days = pc.subtract(days, pc.less(times, pc.multiply(days, DAY)).cast(pa.int64()))
    every = pc.unique(days).to_pylist()
    for day in every:
        yield day, batch if len(every) == 1 else batch.filter(pc.equal(days, day))


def rewrite(directory: Path, paths: Sequence[str]) -> Iterator[File]:
    """Rewrite the messages of some files to new files, in the same order."""
    writer = Writer(directory)
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches():
                writer.write(batch)
    yield from writer.close()
