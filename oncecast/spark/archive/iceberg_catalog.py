"""An Iceberg table in a directory, without a catalog service.

    metadata/v7.metadata.json    version 7 of the table
    metadata/version-hint.text   the newest version

This is the layout of Iceberg's Hadoop catalog. A version is created with a hard link, which fails
if the version exists.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import ValidationException
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.transforms import DayTransform
from pyiceberg.typedef import Identifier
from pyiceberg.types import (
    BinaryType,
    LongType,
    MapType,
    NestedField,
    StringType,
    TimestamptzType,
)

from oncecast.spark.archive.values import Run, sync

METADATA = "metadata"
HINT = "version-hint.text"
NAME = ("oncecast", "archive")
VERSION = re.compile(r"v(\d+)\.metadata\.json")
SCHEMA = Schema(
    NestedField(1, "topic", StringType()),
    NestedField(2, "key", BinaryType()),
    NestedField(3, "value", BinaryType()),
    NestedField(4, "headers", MapType(9, StringType(), 10, BinaryType(), value_required=False)),
    NestedField(5, "offset", LongType()),
    NestedField(6, "timestamp", TimestamptzType()),
    NestedField(7, "producer", StringType()),
    NestedField(8, "sequence", LongType()),
)
DAYS = PartitionSpec(PartitionField(6, 1000, DayTransform(), "date"))
# Each version lists all snapshots. Without a limit, old versions would need the most disk space.
PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "schema.name-mapping.default": SCHEMA.name_mapping.model_dump_json(),  # files have no ids
}


class Overtaken(ValidationException):  # type: ignore[misc]
    """Another process has created the version. pyiceberg must remove its files and not retry."""


class DirectoryCatalog(NoopCatalog):  # type: ignore[misc]
    def __init__(self, directory: Path) -> None:
        super().__init__("oncecast")
        self._directory = directory
        self._metadata = directory / METADATA

    def load_table(self, identifier: str | Identifier = NAME) -> Table:
        """Return the newest version of the table, and create the first one if necessary."""
        version = self._newest()
        if not version:
            self._create()
            return self.load_table()
        path = self._path(version)
        found = TableMetadataUtil.parse_raw(path.read_text())
        location = f"file://{path}"
        return Table(NAME, found, location, load_file_io({}, location), self)

    def exists(self) -> bool:
        return self._newest() > 0

    def repair(self) -> None:
        """Point readers to the newest version, in case a crash prevented it."""
        self._point_to(self._newest())

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Create the version that follows `table`. Raise Overtaken if that version exists."""
        for each in requirements:
            each.validate(table.metadata)
        updated = update_table_metadata(
            table.metadata, updates, metadata_location=table.metadata_location
        )
        for path in self._metadata.glob("*.avro"):
            if path.stat().st_mtime_ns // 1_000_000 >= table.metadata.last_updated_ms:
                sync(path)
        version = version_of(table.metadata_location) + 1
        self._write(version, updated)
        return CommitTableResponse(
            metadata=updated, metadata_location=f"file://{self._path(version)}"
        )

    def _create(self) -> None:
        self._metadata.mkdir(exist_ok=True)
        location = f"file://{self._directory}"
        try:
            self._write(
                1, new_table_metadata(SCHEMA, DAYS, UNSORTED_SORT_ORDER, location, dict(PROPERTIES))
            )
        except Overtaken:  # another process has created the same first version
            return

    def _write(self, version: int, metadata: TableMetadata) -> None:
        with Run(self._directory) as run:
            prepared = run.path / "version"
            location = f"file://{prepared}"
            ToOutputFile.table_metadata(metadata, load_file_io({}, location).new_output(location))
            sync(prepared)
            try:
                os.link(prepared, self._path(version))
            except FileExistsError:
                raise Overtaken(f"version {version} already exists") from None
            sync(self._metadata)
        self._point_to(version)

    def _point_to(self, version: int) -> None:
        """Write the number of the newest version, for readers."""
        hint = self._metadata / HINT
        if hint.exists() and hint.read_text() == str(version):
            return
        with Run(self._directory) as run:
            (run.path / HINT).write_text(str(version))
            (run.path / HINT).replace(hint)

    def _newest(self) -> int:
        found = self._metadata.iterdir() if self._metadata.exists() else ()
        return max((version_of(each.name) for each in found), default=0)

    def _path(self, version: int) -> Path:
        return self._metadata / f"v{version}.metadata.json"


def version_of(location: str) -> int:
    """Return a metadata file's version, or 0 for any other file."""
    found = VERSION.fullmatch(location.rpartition("/")[2])
    return int(found[1]) if found else 0
