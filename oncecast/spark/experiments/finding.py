"""What an experiment has found: tables, figures, and what they were made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from oncecast.lab.experiments.runs import Run, Scale
from oncecast.lab.papers.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A run's row of a trace; `time` is virtual seconds unless the run was live.
TRACE = (
    "story string, system string, nodes int, messages int, positions int, share double, seed int, "
    "line long, time double, kind string, node string, subject string, value double"
)
RUN = ("system", "nodes", "messages", "positions", "share", "seed")
SETTING = RUN[:-1]  # what runs have in common that differ by their dice


class Figure(msgspec.Struct, frozen=True):
    name: str  # of its file
    caption: str
    png: bytes


class Finding(msgspec.Struct, frozen=True):
    name: str
    title: str
    source: str  # what it did, and what it says came of it
    setting: str  # how we did it
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    runs: str = ""  # how many, and of which seeds

    @property
    def broken(self) -> int:
        """How much does not hold that must."""
        return sum(not must.holds for table in self.tables for must in table.must)


class Experiment(NamedTuple):
    """`find` is given the trace of the runs, and of others of the same stories."""

    name: str
    about: str
    runs: Callable[[Scale], list[Run]]
    find: Callable[[DataFrame], Finding]


def collected(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def violations(trace: DataFrame) -> list[str]:
    """Runs that ended with a broken promise, and which."""
    broken = trace.where("kind = 'violation'").select("story", *RUN, "subject").collect()
    return [
        f"{row.story}, {row.system}, {row.nodes} nodes, share {row.share:g}, seed {row.seed}: "
        f"{row.subject}"
        for row in broken
    ]
