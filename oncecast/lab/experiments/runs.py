"""The parts of an experiment: scenario runs, and the rows of their traces.

A scenario plays one run in the simulator and writes events as rows. The function that writes a row
documents it. The data pipeline turns the rows into tables and figures.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

# Time, kind, node, subject and value.
Row = tuple[float, str, str, str, float]
Note = Callable[[float, str, str, str, float], None]


class Run(msgspec.Struct, frozen=True):
    """One run. These fields determine everything that happens in it."""

    scenario: str
    system: str
    nodes: int
    messages: int = 0  # total number of messages that the nodes publish
    positions: int = 1  # number of positions of each node on the ring
    share: float = 0.0  # fraction of nodes that fail at the same time
    seed: int = 1


Scenario = Callable[[Run, Note], None]


class Scale(msgspec.Struct, frozen=True):
    """The size of the experiments."""

    nodes_max: int = 10_000
    seed: int = 1  # the first seed

    def seeds(self, count: int) -> range:
        return range(self.seed, self.seed + count)
