"""A Delta Lake table. Each commit has a transaction identifier, so that it is added only once."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from oncecast.spark.archive.log import Commit, Log
from oncecast.spark.archive.values import File, move, sync
from oncecast.wire.batch_arrow import SCHEMA

if TYPE_CHECKING:
    from deltalake import DeltaTable

APP = "oncecast"  # the application name in our transaction identifiers
LOG = "_delta_log"
PARTITION = "date"


class DeltaFormat:
    name = "delta"

    def __init__(self, log: Log) -> None:
        self._directory = log.directory

    def publish(self, number: int, commit: Commit) -> list[str]:
        """Add the files of a commit to the table, unless the table already has the commit."""
        from deltalake.exceptions import CommitFailedError

        while number_of(table := self._opened()) < number:
            if lost := move(self._directory, commit.added):
                return lost
            # Another program may have replaced the files that this commit replaces.
            outdated = bool(set(commit.removed) - set(paths_of(table)))
            try:
                self._write(table, number, None if outdated else commit)
            except CommitFailedError:  # another process has changed the table meanwhile
                continue
            if outdated:
                for file in commit.added:
                    (self._directory / file.path).unlink(missing_ok=True)
        return []

    def shows(self, number: int) -> bool:
        return (self._directory / LOG).exists() and number_of(self._opened()) >= number

    def paths(self) -> list[str]:
        return paths_of(self._opened()) if (self._directory / LOG).exists() else []

    def clean(self) -> None:
        """Remove replaced files after the table's retention time, a week by default."""
        self._opened().vacuum(dry_run=False)

    def _opened(self) -> DeltaTable:
        from deltalake import DeltaTable, Schema

        schema = pa.schema([*SCHEMA, pa.field(PARTITION, pa.date32())])
        if not DeltaTable.is_deltatable(str(self._directory)):
            made = {"schema": Schema.from_arrow(schema), "partition_by": [PARTITION]}
            DeltaTable.create(str(self._directory), mode="ignore", **made)
        return DeltaTable(str(self._directory))

    def _write(self, table: DeltaTable, number: int, commit: Commit | None) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import RemoveAction

        actions: list[Any] = []
        if commit is not None:
            changed = not commit.removed
            actions = [self._added(file, changed=changed) for file in commit.added]
            now = time.time_ns() // 1_000_000
            actions += [
                RemoveAction(path, False, now, None, day_of(path)) for path in commit.removed
            ]
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            [PARTITION],
            commit_properties=CommitProperties(app_transactions=[Transaction(APP, number)]),
        )
        for path in (self._directory / LOG).glob(f"{table.version():020}.json"):
            sync(path)
        sync(self._directory / LOG)

    def _added(self, file: File, *, changed: bool) -> Any:
        from deltalake.transaction import AddAction

        path = self._directory / file.path
        now = time.time_ns() // 1_000_000
        return AddAction(
            file.path, file.bytes, {PARTITION: file.date}, now, changed, statistics(path)
        )


def number_of(table: DeltaTable) -> int:
    """Return the number of our last commit in the table."""
    found: int | None = table.transaction_version(APP)
    return found or 0


def paths_of(table: DeltaTable) -> list[str]:
    found: list[str] = pa.table(table.get_add_actions())["path"].to_pylist()
    return found


def day_of(path: str) -> dict[str, str | None]:
    """Return the partition of a file in the table."""
    day = Path(path).parent.name.partition("=")[2]
    return {PARTITION: day if day[:1].isdigit() else None}


def statistics(path: Path) -> str:
    """Return a file's message count and its range of topics and offsets, for readers."""
    footer = pq.read_metadata(path)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    leaves = {footer.schema.column(leaf).path: leaf for leaf in range(footer.num_columns)}
    low, high = {}, {}
    for column in ("topic", "offset"):
        every = [group.column(leaves[column]).statistics for group in groups]
        if every and all(each is not None and each.has_min_max for each in every):
            low[column] = min(each.min for each in every)
            high[column] = max(each.max for each in every)
    found = {"numRecords": footer.num_rows, "minValues": low, "maxValues": high}
    return json.dumps(found)
