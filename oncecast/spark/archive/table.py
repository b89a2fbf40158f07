"""The interface of all table formats, and the values that tables store.

A table holds files, and for each topic the offsets that the files have. One commit changes both, so
a message is in the table once. Tasks write files where readers do not look. A commit is a
compare-and-swap on the version of the table: of two runs that plan with the same version, one
commits, and the other plans again.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import msgspec

from oncecast.errors import BadArchive
from oncecast.spark.archive.intervals import Interval

INTERNAL = "_oncecast"  # Spark and Arrow ignore names that start with _
STAGED = "staged"
ABANDONED_AFTER = 86_400  # seconds without a new file, after which no run uses a directory
NO_DATE = "__HIVE_DEFAULT_PARTITION__"  # the name that stands for a null


class Archived(msgspec.Struct, frozen=True):
    """The id of a topic, and the offsets of it that the table holds."""

    topic_id: int
    held: tuple[Interval, ...]

    @property
    def end(self) -> int:
        return self.held[-1][1]


class File(msgspec.Struct, frozen=True):
    """A Parquet file that a task has staged, with messages of one day."""

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
    """The version of a table, and what it holds of each topic."""

    version: int
    topics: dict[str, Archived]


Piece = TypeVar("Piece")
Work = Callable[[Piece], Iterable[File]]  # a task writes files
Execute = Callable[[Sequence[Any], Work[Any]], list[File]]  # runs the work of all pieces


class Table(Protocol):
    directory: Path

    def state(self) -> State:
        """Return the newest version, after completing a commit that a crash interrupted."""

    def commit(self, before: State, topics: Mapping[str, Archived], files: Sequence[File]) -> bool:
        """Add files and replace what is held of topics; return False if `before` is outdated."""

    def compact(self, execute: Execute) -> int:
        """Replace small files by larger ones; return how many were replaced."""

    def files(self) -> list[str]:
        """Return the paths of all files of the newest version."""


class Run:
    """The directory in which one run stages its files.

    A run that fails leaves it: its commit may be stored, and its files not yet moved.
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

    def remove_abandoned(self) -> None:
        """Remove what killed runs left. Call it after a commit, which outdates paused runs."""
        for each in self._all.iterdir():
            if time.time() - each.stat().st_mtime > ABANDONED_AFTER:
                shutil.rmtree(each, ignore_errors=True)


def publish(directory: Path, files: Sequence[File]) -> list[str]:
    """Move staged files to where readers look; return those that are at neither place."""
    lost = []
    for file in files:
        target = directory / file.path
        target.parent.mkdir(exist_ok=True)
        try:
            (directory / file.staged).rename(target)
        except FileNotFoundError:  # moved before, perhaps by another process
            if not target.exists():
                lost.append(file.path)
    for folder in sorted({(directory / file.path).parent for file in files}):
        sync(folder)
    return lost


def sync(path: Path) -> None:
    """Make a file, or the names in a directory, survive a crash of the machine."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def check_unused(directory: Path) -> None:
    """Raise if the directory holds something that is not a table of ours."""
    if (directory / "_spark_metadata").exists():
        raise BadArchive(
            f"{directory} was written by an older version, whose files cannot be continued",
            "archive to another directory, with --from to start after the last archived offset",
        )
    if directory.exists() and not directory.is_dir():
        raise BadArchive(f"{directory} is not a directory")
    for each in directory.iterdir() if directory.exists() else ():
        if each.name != INTERNAL:
            raise BadArchive(f"{directory} has files that are not an archive: {each.name}")
