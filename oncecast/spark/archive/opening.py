"""Find the format of an archive."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from oncecast.errors import BadArchive
from oncecast.spark.archive.delta_format import DeltaFormat
from oncecast.spark.archive.iceberg_format import IcebergFormat
from oncecast.spark.archive.log import Log
from oncecast.spark.archive.parquet_format import ParquetFormat
from oncecast.spark.archive.table import Table
from oncecast.spark.archive.values import check_unused

FORMATS = {each.name: each for each in (ParquetFormat, DeltaFormat, IcebergFormat)}
PACKAGES = {DeltaFormat.name: "deltalake", IcebergFormat.name: "pyiceberg"}


def open_table(directory: Path, kind: str | None = None) -> Table:
    """Return the archive in this directory, or a new one.

    Raise an error if its format differs from `kind`. By default, a new archive is plain Parquet.
    """
    log = Log(directory)
    found = log.last()
    if found is None:
        check_unused(directory)
    stored = kind or "parquet" if found is None else found[1].table
    if kind not in (None, stored):
        fact = f"{directory} is an archive in format {stored}, not {kind}"
        raise BadArchive(fact, f"use --format {stored}, or archive to another directory")
    check_installed(stored)
    return Table(log, FORMATS[stored](log))


def check_installed(kind: str) -> None:
    """Raise if the package that writes this format is not installed."""
    package = PACKAGES.get(kind)
    if package is not None and find_spec(package) is None:
        fact = f"format {kind} needs {package}, which is not installed"
        raise BadArchive(fact, 'run pip install "oncecast[tables]"')
