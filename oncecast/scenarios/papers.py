"""The papers whose figures are repeated in the simulator, by name, for `oncecast sim papers`.

To add one: a function that takes an Experiment and yields a Table whenever one is ready.
"""

from __future__ import annotations

from oncecast.scenarios import chord_paper, hyparview_paper, plumtree_paper, scribe_paper
from oncecast.scenarios.tables import Paper

PAPERS: dict[str, Paper] = {
    "chord": chord_paper.tables,
    "hyparview": hyparview_paper.tables,
    "plumtree": plumtree_paper.tables,
    "scribe": scribe_paper.tables,
}
