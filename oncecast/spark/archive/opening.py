"""Find the format of an archive."""

from __future__ import annotations

from pathlib import Path

from oncecast.spark.archive.parquet_table import ParquetTable
from oncecast.spark.archive.table import Table

FORMATS = ("parquet",)


def open_table(directory: Path, kind: str | None = None) -> Table:
    """Return the archive in this directory, or a new one."""
    return ParquetTable(directory)
