"""An Iceberg table. A property holds the number of our last commit, so it is added only once."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncecast.errors import BadArchive
from oncecast.spark.archive.log import Commit, Log
from oncecast.spark.archive.values import File, move

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.update.snapshot import UpdateSnapshot

    from oncecast.spark.archive.iceberg_catalog import DirectoryCatalog

NUMBER = "oncecast.commit"
KEPT = 7 * 86_400  # seconds for which readers may still use an older version


class IcebergFormat:
    name = "iceberg"

    def __init__(self, log: Log) -> None:
        self._log, self._directory = log, log.directory.resolve()

    def publish(self, number: int, commit: Commit) -> list[str]:
        """Add the files of a commit to the table, unless the table already has the commit."""
        from oncecast.spark.archive.iceberg_catalog import Overtaken

        while number_of(table := self._opened()) < number:
            if lost := move(self._directory, commit.added):
                return lost
            with suppress(Overtaken):
                self._write(table, number, commit)
        self._catalog().repair()
        return []

    def shows(self, number: int) -> bool:
        return self._catalog().exists() and number_of(self._opened()) >= number

    def paths(self) -> list[str]:
        return list(self._files(self._opened())) if self._catalog().exists() else []

    def clean(self) -> None:
        """Expire snapshots after a week, and remove replaced files that no snapshot uses."""
        table = self._opened()
        since = time.time() - KEPT
        old = {each.snapshot_id for each in table.snapshots() if each.timestamp_ms < since * 1000}
        if old - {each.snapshot_id for each in table.refs().values()}:
            table.maintenance.expire_snapshots().older_than(
                datetime.fromtimestamp(since, UTC)
            ).commit()
        replaced = [
            path
            for version in self._log.versions()
            for path in self._log.read(version).removed
            if (self._directory / path).exists()
        ]
        if not replaced:
            return
        used = {self._relative(each) for each in table.inspect.all_files()["file_path"].to_pylist()}
        for path in set(replaced) - used:
            (self._directory / path).unlink(missing_ok=True)

    def _catalog(self) -> DirectoryCatalog:
        from oncecast.spark.archive.iceberg_catalog import DirectoryCatalog

        return DirectoryCatalog(self._directory)

    def _opened(self) -> Table:
        table = self._catalog().load_table()
        if table.location() != self._location(""):
            fact = f"{self._directory} was moved, but its Iceberg table contains absolute paths"
            raise BadArchive(fact, f"move it back to {table.location().removeprefix('file://')}")
        return table

    def _files(self, table: Table) -> dict[str, Any]:
        """Return the table's data files by their path in the directory."""
        found = (task.file for task in table.scan().plan_files())
        return {self._relative(each.file_path): each for each in found}

    def _relative(self, location: str) -> str:
        return str(Path(location.removeprefix("file://")).relative_to(self._directory))

    def _location(self, path: str) -> str:
        return f"file://{self._directory / path}"

    def _write(self, table: Table, number: int, commit: Commit) -> None:
        present = self._files(table) if commit.removed else {}
        # Another program may have replaced the files that this commit replaces.
        outdated = bool(set(commit.removed) - present.keys())
        with table.transaction() as transaction:
            transaction.set_properties({NUMBER: str(number)})
            if not outdated:
                removed = [present[path] for path in commit.removed]
                added = [self._data_file(table, file) for file in commit.added]
                change(transaction.update_snapshot({NUMBER: str(number)}), removed, added)
        if outdated:
            for file in commit.added:
                (self._directory / file.path).unlink(missing_ok=True)

    def _data_file(self, table: Table, file: File) -> Any:
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        location = self._location(file.path)
        if file.date is not None:
            return parquet_file_to_data_file(table.io, table.metadata, location)
        return undated(file, location)


def number_of(table: Table) -> int:
    """Return the number of our last commit in the table."""
    return int(table.properties.get(NUMBER, 0))


def change(update: UpdateSnapshot, removed: list[Any], added: list[Any]) -> None:
    """Add a snapshot that drops some data files and adds others."""
    with update.overwrite() if removed else update.fast_append() as snapshot:
        for each in removed:
            snapshot.delete_data_file(each)
        for each in added:
            snapshot.append_data_file(each)


def undated(file: File, location: str) -> Any:
    """Describe a file without its day and bounds. pyiceberg cannot handle times after 9999."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(None),
        record_count=file.rows,
        file_size_in_bytes=file.bytes,
        spec_id=0,
    )
