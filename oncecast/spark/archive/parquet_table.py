"""Plain Parquet files with a commit log, for readers that know nothing of it.

    date=2026-11-18/NAME.parquet    files; each is complete when it gets this name
    _oncecast/00000007.json         commit 7: what the table holds, and the files that it adds
    _oncecast/staged/RUN/           files and commits that a run prepares

A commit is created under its number with a hard link, which fails if the number exists. Then its
files are moved to where readers look. A crash in between leaves moves to be done, and the next run
does them before anything else. So only the last commit can be unfinished.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from oncecast.errors import BadArchive
from oncecast.spark.archive.table import (
    INTERNAL,
    Archived,
    Execute,
    File,
    Run,
    State,
    check_unused,
    publish,
    sync,
)
from oncecast.spark.archive.writing import rewrite

FORMAT = 1
SMALL_BYTES = 64 << 20  # files below this size are compacted
TARGET_BYTES = 128 << 20  # approximate size of a compacted file
SNAPSHOT_EVERY = 64  # commits, so that few must be read


class Commit(msgspec.Struct, frozen=True):
    format: int
    topics: dict[str, Archived]  # all topics of the table
    added: list[File]
    removed: list[str]  # paths
    before: list[str] | None = None  # a snapshot: the paths of all files before this commit


class ParquetTable:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._log = directory / INTERNAL
        if not self._versions():
            check_unused(directory)

    def state(self) -> State:
        versions = self._versions()
        if not versions:
            return State(0, {})
        last = self._read(versions[-1])
        lost = self._complete(last)
        if versions[-1] != self._versions()[-1]:  # another run has committed meanwhile
            return self.state()
        if lost:
            raise BadArchive(f"{self.directory / lost[0]} is missing", "restore it from a backup")
        return State(versions[-1], last.topics)

    def commit(self, before: State, topics: Mapping[str, Archived], files: Sequence[File]) -> bool:
        return self._commit(before, {**before.topics, **topics}, files, ())

    def compact(self, execute: Execute) -> int:
        """Replace small files of each day. A run that commits meanwhile makes this one plan again.

        Between the removal of files and the moves, a reader of plain Parquet misses messages.
        """
        while True:
            before = self.state()
            groups = list(self._small())
            if not groups:
                return 0
            with Run(self.directory) as run:
                files = execute(groups, partial(rewrite, run.path))
                removed = [path for group in groups for path in group]
                relative = [str(Path(path).relative_to(self.directory)) for path in removed]
                if self._commit(before, before.topics, files, relative):
                    return len(removed)

    def _small(self) -> Iterator[list[str]]:
        """Yield groups of at least two small files of one day."""
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

    def files(self) -> list[str]:
        return [str(self.directory / path) for path in self._paths()]

    # -- the log --

    def _versions(self) -> list[int]:
        found = self._log.glob("[0-9]*.json") if self._log.exists() else ()
        return sorted(int(each.stem) for each in found)

    def _path(self, version: int) -> Path:
        return self._log / f"{version:08}.json"

    def _read(self, version: int) -> Commit:
        path = self._path(version)
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Commit)
        except msgspec.MsgspecError as error:
            raise BadArchive(f"{path} is damaged: {error}", "restore it from a backup") from None
        if found.format != FORMAT:
            fact = f"{path} has format {found.format}, but this version reads format {FORMAT}"
            raise BadArchive(fact, "use a newer version of oncecast")
        return found

    def _paths(self) -> list[str]:
        """Return the paths of all files, from the last snapshot on."""
        commits: list[Commit] = []
        for version in reversed(self._versions()):
            commits.insert(0, self._read(version))
            if commits[0].before is not None:
                break
        found = dict.fromkeys(commits[0].before or ()) if commits else {}
        for each in commits:
            found |= dict.fromkeys(file.path for file in each.added)
            for path in each.removed:
                del found[path]
        return list(found)

    def _commit(
        self,
        before: State,
        topics: dict[str, Archived],
        files: Sequence[File],
        removed: Sequence[str],
    ) -> bool:
        version = before.version + 1
        paths = None if version % SNAPSHOT_EVERY else self._paths()
        commit = Commit(FORMAT, topics, list(files), list(removed), paths)
        with Run(self.directory) as run:
            prepared = run.path / "commit"
            prepared.write_bytes(msgspec.json.encode(commit))
            sync(prepared)
            try:
                os.link(prepared, self._path(version))
            except FileExistsError:
                return False
            sync(self._log)
            self._complete(commit)
            run.remove_abandoned()
        return True

    def _complete(self, commit: Commit) -> list[str]:
        """Move the files of a commit; return those that do not exist.

        Replaced files go first, so that a reader of plain Parquet never sees a message twice.
        """
        for path in commit.removed:
            (self.directory / path).unlink(missing_ok=True)
        return publish(self.directory, commit.added)
