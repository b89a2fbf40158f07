"""Plain Parquet files, for readers that do not know about the log."""

from __future__ import annotations

from oncecast.spark.archive.log import Commit, Log
from oncecast.spark.archive.values import move


class ParquetFormat:
    name = "parquet"

    def __init__(self, log: Log) -> None:
        self._log = log

    def publish(self, number: int, commit: Commit) -> list[str]:
        """Remove replaced files, then move the new files of a commit.

        Readers may miss messages in between. In the opposite order, they would see messages twice.
        """
        for path in commit.removed:
            (self._log.directory / path).unlink(missing_ok=True)
        return move(self._log.directory, commit.added)

    def shows(self, number: int) -> bool:
        """Return True: the log says what the table holds, even before all files are moved."""
        return True

    def paths(self) -> list[str]:
        return self._log.paths()

    def clean(self) -> None:
        """Do nothing: replaced files are removed at once."""
