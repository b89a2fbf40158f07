"""The commits of an archive, for all formats.

    date=2026-11-18/NAME.parquet    files; each is complete when it gets this name
    _oncecast/00000007.json         commit 7: what the table holds, and the files that it adds
    _oncecast/staged/RUN/           files and commits that a run prepares

A run creates a commit under its number with a hard link, which fails if the number is taken. From
then on, the commit is decided, and the format shows it to readers. If a run crashes in between, the
next run shows the commit first. Readers can therefore miss only the last commit.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from oncecast.errors import BadArchive
from oncecast.spark.archive.values import INTERNAL, Archived, File, Run, sync

FORMAT = 1
SNAPSHOT_EVERY = 64  # number of commits between snapshots, which limits how many commits are read


class Commit(msgspec.Struct, frozen=True):
    format: int
    topics: dict[str, Archived]  # all topics in the table
    added: list[File]
    removed: list[str]  # paths
    before: list[str] | None = None  # in a snapshot: the paths of all files before this commit
    table: str = "parquet"  # the format of the table


class Log:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._log = directory / INTERNAL

    def versions(self) -> list[int]:
        found = self._log.glob("[0-9]*.json") if self._log.exists() else ()
        return sorted(int(each.stem) for each in found)

    def last(self) -> tuple[int, Commit] | None:
        """Return the newest commit and its number, or None for an empty log."""
        versions = self.versions()
        return (versions[-1], self.read(versions[-1])) if versions else None

    def read(self, version: int) -> Commit:
        path = self._path(version)
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Commit)
        except msgspec.MsgspecError as error:
            raise BadArchive(f"{path} is damaged: {error}", "restore it from a backup") from None
        if found.format != FORMAT:
            fact = f"{path} has format {found.format}, but this version reads format {FORMAT}"
            raise BadArchive(fact, "use a newer version of oncecast")
        return found

    def add(self, version: int, commit: Commit) -> bool:
        """Add a commit. Return False if its number is taken."""
        if not version % SNAPSHOT_EVERY:
            commit = msgspec.structs.replace(commit, before=self.paths())
        with Run(self.directory) as run:
            prepared = run.path / "commit"
            prepared.write_bytes(msgspec.json.encode(commit))
            sync(prepared)
            try:
                os.link(prepared, self._path(version))
            except FileExistsError:
                return False
            sync(self._log)
        return True

    def paths(self) -> list[str]:
        """Return the paths of all files, from the last snapshot and later commits."""
        commits: list[Commit] = []
        for version in reversed(self.versions()):
            commits.insert(0, self.read(version))
            if commits[0].before is not None:
                break
        found = dict.fromkeys(commits[0].before or ()) if commits else {}
        for each in commits:
            found |= dict.fromkeys(file.path for file in each.added)
            for path in each.removed:
                found.pop(path, None)
        return list(found)

    def _path(self, version: int) -> Path:
        return self._log / f"{version:08}.json"
