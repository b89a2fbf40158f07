"""An archive: files, and for each topic the offsets in these files.

One commit changes both, so a message is in the table once. Tasks write files where readers do not
look. A commit is a compare-and-swap on the version of the table: of two runs that plan with the
same version, one commits, and the other plans again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from oncecast.errors import BadArchive
from oncecast.spark.archive.log import FORMAT, Commit, Log
from oncecast.spark.archive.values import (
    Archived,
    Execute,
    File,
    Run,
    State,
    remove_abandoned,
)
from oncecast.spark.archive.writing import rewrite

SMALL_BYTES = 64 << 20  # size below which files are compacted
TARGET_BYTES = 128 << 20  # approximate size of a compacted file


class Format(Protocol):
    """A file format, which shows commits to its readers."""

    name: str

    def publish(self, number: int, commit: Commit) -> list[str]:
        """Show a commit to readers, unless they already see it. Return its missing files."""

    def shows(self, number: int) -> bool:
        """Return whether readers see the commit with this number."""

    def paths(self) -> list[str]:
        """Return the paths of all files that readers see, relative to the directory."""

    def clean(self) -> None:
        """Remove replaced files that no reader can still need."""


class Table:
    def __init__(self, log: Log, shown: Format) -> None:
        self.directory = log.directory
        self._log, self._format = log, shown

    def state(self) -> State:
        """Return the newest version, after completing a commit that a crash interrupted."""
        found = self._log.last()
        if found is None:
            return State(0, {})
        version, last = found
        lost = self._format.publish(version, last)
        if version != self._log.versions()[-1]:  # another run has committed in the meantime
            return self.state()
        if lost:
            raise BadArchive(f"{self.directory / lost[0]} is missing", "restore it from a backup")
        return State(version, last.topics)

    def shown(self) -> State:
        """Return the newest version that readers see, without completing a commit."""
        found = self._log.last()
        if found is None:
            return State(0, {})
        version, last = found
        if self._format.shows(version):
            return State(version, last.topics)
        return State(version - 1, self._log.read(version - 1).topics if version > 1 else {})

    def commit(self, before: State, topics: Mapping[str, Archived], files: Sequence[File]) -> bool:
        """Commit new files and the offsets of topics. Return False if `before` is outdated."""
        return self._commit(before, {**before.topics, **topics}, files, ())

    def compact(self, execute: Execute) -> int:
        """Merge the small files of each day, and return how many were replaced.

        If another run commits in the meantime, this one plans again.
        """
        while True:
            before = self.state()
            groups = list(self._small())
            if not groups:
                self._format.clean()
                return 0
            with Run(self.directory) as run:
                files = execute(groups, partial(rewrite, run.path))
                removed = [path for group in groups for path in group]
                relative = [str(Path(path).relative_to(self.directory)) for path in removed]
                if self._commit(before, before.topics, files, relative):
                    self._format.clean()
                    return len(removed)

    def files(self) -> list[str]:
        """Return the paths of all files in the newest version."""
        return [str(self.directory / path) for path in self._format.paths()]

    def _small(self) -> Iterator[list[str]]:
        """Yield groups of at least two small files from one day."""
        days: dict[str, list[Path]] = {}
        for path in map(Path, self.files()):
            if path.stat().st_size < SMALL_BYTES:
                days.setdefault(path.parent.name, []).append(path)
        for paths in days.values():
            group: list[str] = []
            size = 0
            for path in paths:
                group.append(str(path))
                size += path.stat().st_size
                if size >= TARGET_BYTES:
                    yield group
                    group, size = [], 0
            if len(group) > 1:
                yield group

    def _commit(
        self,
        before: State,
        topics: dict[str, Archived],
        files: Sequence[File],
        removed: Sequence[str],
    ) -> bool:
        number = before.version + 1
        commit = Commit(FORMAT, topics, list(files), list(removed), table=self._format.name)
        if not self._log.add(number, commit):
            return False
        self._format.publish(number, commit)
        remove_abandoned(self.directory)
        return True
