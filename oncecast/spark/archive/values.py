"""The values that archives store, and the files that runs stage."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import msgspec

from oncecast.errors import BadArchive
from oncecast.spark.archive.intervals import Interval

INTERNAL = "_oncecast"  # Spark and Arrow ignore names that start with _
STAGED = "staged"
ABANDONED_AFTER = 86_400  # seconds without a new file, after which a run counts as abandoned
NO_DATE = "__HIVE_DEFAULT_PARTITION__"  # the name that stands for a null


class Archived(msgspec.Struct, frozen=True):
    """A topic's id, and its offsets in the table."""

    topic_id: int
    held: tuple[Interval, ...]

    @property
    def end(self) -> int:
        return self.held[-1][1]


class File(msgspec.Struct, frozen=True):
    """A Parquet file that a task has staged, with messages from one day."""

    run: str
    name: str
    date: str | None  # None if the timestamp is not in the years 1 to 9999
    rows: int
    bytes: int

    @property
    def staged(self) -> str:
        return f"{INTERNAL}/{STAGED}/{self.run}/{self.name}.part"

    @property
    def path(self) -> str:
        """Return the path in the table, relative to its directory."""
        return f"date={self.date or NO_DATE}/{self.name}.parquet"


class State(msgspec.Struct, frozen=True):
    """A table's version, and the offsets that it holds for each topic."""

    version: int
    topics: dict[str, Archived]


Piece = TypeVar("Piece")
Work = Callable[[Piece], Iterable[File]]  # a task writes files
# Runs the work on all pieces and returns the files.
Execute = Callable[[Sequence[Any], Work[Any]], list[File]]


class Run:
    """The directory in which one run stages its files.

    A failed run leaves the directory behind, because its files may be committed but not yet moved.
    """

    def __init__(self, directory: Path) -> None:
        self.name = uuid4().hex
        self._all = directory / INTERNAL / STAGED
        self.path = self._all / self.name

    def __enter__(self) -> Run:
        self.path.mkdir(parents=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            shutil.rmtree(self.path, ignore_errors=True)


def remove_abandoned(directory: Path) -> None:
    """Remove the directories of killed runs. Call this after a commit: paused runs then fail."""
    for each in (directory / INTERNAL / STAGED).iterdir():
        if time.time() - each.stat().st_mtime > ABANDONED_AFTER:
            shutil.rmtree(each, ignore_errors=True)


def move(directory: Path, files: Sequence[File]) -> list[str]:
    """Move staged files to their final paths. Return the files that are in neither place."""
    lost = []
    for file in files:
        target = directory / file.path
        target.parent.mkdir(exist_ok=True)
        try:
            (directory / file.staged).rename(target)
        except FileNotFoundError:  # the file was moved before, perhaps by another process
            if not target.exists():
                lost.append(file.path)
    for folder in sorted({(directory / file.path).parent for file in files}):
        sync(folder)
    return lost


def sync(path: Path) -> None:
    """Make a file, or the names in a directory, survive a machine crash."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def check_unused(directory: Path) -> None:
    """Raise an error if the directory contains anything but an archive."""
    if (directory / "_spark_metadata").exists():
        raise BadArchive(
            f"{directory} was written by an older version and cannot be continued",
            "archive to another directory, with --from to start after the last archived offset",
        )
    if directory.exists() and not directory.is_dir():
        raise BadArchive(f"{directory} is not a directory")
    for each in directory.iterdir() if directory.exists() else ():
        if each.name != INTERNAL:
            raise BadArchive(
                f"{directory} contains a file that is not part of an archive: {each.name}"
            )
