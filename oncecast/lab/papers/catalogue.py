"""The papers that `oncecast sim papers` reproduces in the simulator, by name.

To add a paper, write a function that takes an Experiment and yields Tables.
"""

from __future__ import annotations

from oncecast.lab.papers import chord as chord_paper
from oncecast.lab.papers import hyparview as hyparview_paper
from oncecast.lab.papers import plumtree as plumtree_paper
from oncecast.lab.papers import scribe as scribe_paper
from oncecast.lab.papers.tables import Paper

PAPERS: dict[str, Paper] = {
    "chord": chord_paper.tables,
    "hyparview": hyparview_paper.tables,
    "plumtree": plumtree_paper.tables,
    "scribe": scribe_paper.tables,
}
