"""What experiments are made of: runs of a story, and the rows of the trace that each leaves.

A story plays one run in the simulator and notes what happens; it draws no conclusions. What the
rows mean is said where they are noted; tables and figures are made of them by the data pipeline.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

# When, what kind of thing, at which node, about what, how much.
Row = tuple[float, str, str, str, float]
Note = Callable[[float, str, str, str, float], None]


class Run(msgspec.Struct, frozen=True):
    """One run: everything that it does follows from these."""

    story: str
    system: str
    nodes: int
    messages: int = 0  # published, all in all
    positions: int = 1  # of each node on the ring
    share: float = 0.0  # of the nodes that fail at once
    seed: int = 1


Story = Callable[[Run, Note], None]


class Scale(msgspec.Struct, frozen=True):
    """How large the experiments are to be."""

    nodes_max: int = 10_000
    seed: int = 1  # the first one

    def seeds(self, count: int) -> range:
        return range(self.seed, self.seed + count)
