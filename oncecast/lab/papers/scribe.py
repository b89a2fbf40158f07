"""Measure Scribe: trees of 10,000 nodes, and the cost of lookups and publishes.

Castro et al., JSAC 2002, used Pastry. Routes in Chord are longer, so the trees are deeper.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import log2
from statistics import fmean
from typing import NamedTuple

from oncecast.dht.events import FindRoot, RootFound
from oncecast.kernel.protocol import NodeId, Value
from oncecast.lab.papers.chord import random_key
from oncecast.lab.papers.tables import Cell, Experiment, Must, Table
from oncecast.lab.scenarios.scribe_forest import DEAD, TOPICS_MAX, Forest
from oncecast.simulator.simulated import Simulation

NODES = 10_000
SIZES = (10, 30, 100, 300, 1000, 3000, 10_000)
LOOKUPS = 2000
EVERY = 0.005  # seconds between lookups


def tables(experiment: Experiment) -> Iterator[Table]:
    yield trees(experiment)
    yield cost(experiment)


class Shape(NamedTuple):
    """Measurements over all trees."""

    tables_mean: float  # mean number of topics for which a node has children
    tables_most: int
    children_most: int  # maximum number of children that a node has in one tree
    copies: float  # mean number of copies per message, over all topics
    root_copies: float  # mean number of copies that the root sends per message
    depth_most: int


def shape(forest: Forest) -> Shape:
    by_node = [forest.trees(node) for node in forest.names]
    tables = [sum(bool(tree.children) for tree in each.values()) for each in by_node]
    feeding = [tree for each in by_node for tree in each.values() if tree.children]
    roots = [tree for tree in feeding if tree.root]
    return Shape(
        fmean(tables),
        max(tables),
        max(len(tree.children) for tree in feeding),
        sum(len(tree.children) for tree in feeding) / len(forest.topics),
        fmean(len(tree.children) for tree in roots),
        max(depth(forest, topic) for topic in forest.topics),
    )


def depth(forest: Forest, topic: str) -> int:
    """Return the depth of the tree for `topic`."""
    level = [node for node in forest.names if (tree := forest.trees(node).get(topic)) and tree.root]
    below = -1
    while level:
        below += 1
        level = [child for node in level for child in forest.trees(node)[topic].children]
    return below


class Counted:
    """A forest that records lookups. It runs on the simulator's fast path."""

    def __init__(self, seed: int, nodes: int, topics: int) -> None:
        self.found: list[RootFound] = []
        self.sim = Simulation(seed, listener=self._heard)
        self.forest = Forest(self.sim, nodes, topics)

    def _heard(self, node: NodeId, event: Value) -> None:
        if isinstance(event, RootFound):
            self.found.append(event)
        else:
            self.forest.audience.heard(self.sim, node, event)


def trees(experiment: Experiment) -> Table:
    """Check trees of the paper's sizes: each member gets each message, even after nodes die."""
    nodes = experiment.nodes or NODES
    experiment.say(f"{nodes} nodes join")
    counted = Counted(experiment.seed, nodes, min(TOPICS_MAX, max(1, nodes // 4)))
    forest = counted.forest
    forest.join()
    before = shape(forest)
    experiment.say("messages")
    forest.multicast()
    forest.leave()
    forest.multicast()
    experiment.say(f"{DEAD:.0%} die")
    forest.kill(DEAD)
    heartbeats = forest.repaired(3)
    forest.multicast()
    members = sum(len(joined) for joined in forest.audience.joined.values())
    rows: tuple[tuple[Cell, ...], ...] = (
        ("topics", None, len(forest.topics)),
        ("memberships at the end", None, members),
        ("messages, each to all live members", None, len(forest.audience.messages)),
        ("children tables per node, mean", 2.4, before.tables_mean),
        ("children tables per node, max", 40, before.tables_most),
        ("children in a table, max", None, before.children_most),
        ("depth of a tree, max", None, before.depth_most),
        (f"heartbeats until repaired, {DEAD:.0%} dead", None, heartbeats),
    )
    return Table(
        title=f"{nodes} nodes, topic of rank g with N g^-1.25 members",
        columns=("figure", "paper (100,000 nodes, 1,500 groups; quoted from memory)", "ours"),
        rows=rows,
        must=(
            Must("each live member got each message once, and no other node did", True),
            Must("trees are complete within 3 heartbeats", heartbeats <= 3),
        ),
        notes=("if the first check fails, the run stops with a violation",),
    )


def cost(experiment: Experiment) -> Table:
    """Measure the cost of a lookup and a publish in systems of ten or more nodes."""
    rows: list[tuple[Cell, ...]] = []
    for nodes in SIZES:
        if nodes > (experiment.nodes or NODES):
            break
        experiment.say(f"cost, {nodes} nodes")
        counted = Counted(experiment.seed, nodes, 1)
        counted.forest.join()
        look_up(counted)
        found = shape(counted.forest)
        hops = fmean(each.hops for each in counted.found)
        rows.append(
            (nodes, log2(nodes) / 2, hops, found.copies, found.root_copies, found.children_most)
        )
    return Table(
        title="Cost of a lookup and of a publish to all nodes",
        columns=(
            "nodes",
            "1/2 log2 N",
            "hops per lookup",
            "copies per publish",
            "by the root",
            "by the busiest node",
        ),
        rows=tuple(rows),
        must=(
            Must(
                "hops grow with log N, and are at most 1/2 log2 N",
                all(row[2] <= row[1] for row in rows),  # type: ignore[operator]
            ),
            Must(
                "a publish costs one copy per node, from a parent to a child",
                all(row[3] == row[0] - 1 for row in rows),  # type: ignore[operator]
            ),
        ),
        notes=("with a successor list of 8, one hop covers the last three or four halvings",),
    )


def look_up(counted: Counted) -> None:
    sim = counted.sim
    for index in range(LOOKUPS):
        ask = partial(sim.ask, sim.rng.choice(counted.forest.names), FindRoot(random_key(sim.rng)))
        sim.call(index * EVERY, ask)
    sim.run(until=sim.now + LOOKUPS * EVERY + 5.0)
