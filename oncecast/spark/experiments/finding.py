"""The result of an experiment, with its tables, figures and setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from oncecast.lab.experiments.runs import Run, Scale
from oncecast.lab.papers.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The columns of a trace. `time` is in virtual seconds, unless the run was live.
TRACE = (
    "scenario string, system string, nodes int, messages int, positions int, share double, "
    "seed int, line long, time double, kind string, node string, subject string, value double"
)
RUN = ("system", "nodes", "messages", "positions", "share", "seed")
SETTING = RUN[:-1]  # shared by runs that differ only in their seed


Figures = list[dict[str, Any]]


class Figure(msgspec.Struct, frozen=True):
    name: str  # file name
    caption: str
    png: bytes


class Finding(msgspec.Struct, frozen=True):
    name: str
    title: str
    source: str  # the experiment and its result in the source report
    setting: str  # the setting of our runs
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    answer: str = ""  # comparison of our results with the source
    runs: str = ""  # number of runs, and their seeds

    @property
    def broken(self) -> int:
        """Return the number of failed checks."""
        return sum(not must.holds for table in self.tables for must in table.must)


class Experiment(NamedTuple):
    """A set of simulation runs. `find` evaluates a trace with these runs, and possibly others."""

    name: str
    about: str
    runs: Callable[[Scale], list[Run]]
    find: Callable[[DataFrame], Finding]


def collected(frame: DataFrame) -> Figures:
    return [row.asDict() for row in frame.collect()]


def violations(trace: DataFrame) -> list[str]:
    """Return a description of each run that ended with a violation."""
    broken = trace.where("kind = 'violation'").select("scenario", *RUN, "subject").collect()
    return [
        f"{row.scenario}, {row.system}, {row.nodes} nodes, share {row.share:g}, seed {row.seed}: "
        f"{row.subject}"
        for row in broken
    ]
