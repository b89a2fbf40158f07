"""Graph properties of an overlay: clustering, distances, connected parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

Links = Sequence[Sequence[int]]  # for each node, the indexes of its neighbours


class Distances(NamedTuple):
    """Distances between all connected pairs of nodes."""

    mean: float
    farthest_mean: float  # hops to the farthest node, averaged over all senders
    reached: int  # number of connected pairs, including each node with itself


def clustering(links: Links) -> float:
    """Return the mean fraction of neighbour pairs that are also linked to each other."""
    near = [frozenset(each) for each in links]
    total = 0.0
    for each in links:
        pairs = len(each) * (len(each) - 1) // 2
        if pairs:
            total += sum(b in near[a] for a, b in combinations(each, 2)) / pairs
    return total / len(links)


def distances(links: Links) -> Distances:
    """Return the distances between all pairs.

    The ball of radius r + 1 around a node is the union of the balls of radius r around its
    neighbours. A ball is an integer with one bit per node, so ten thousand nodes take seconds.
    """
    balls = [1 << node for node in range(len(links))]
    total = 0
    radii = [0] * len(links)
    radius = 0
    grown = True
    while grown:
        radius += 1
        grown = False
        larger = []
        for node, each in enumerate(links):
            ball = balls[node]
            for neighbour in each:
                ball |= balls[neighbour]
            larger.append(ball)
            new = ball.bit_count() - balls[node].bit_count()
            if new:
                total += radius * new
                radii[node], grown = radius, True
        balls = larger
    reached = sum(ball.bit_count() for ball in balls)
    return Distances(total / max(1, reached - len(links)), sum(radii) / max(1, len(radii)), reached)


def part_sizes(links: Links) -> list[int]:
    """Return the size of the connected part of each node. Links must be symmetric."""
    sizes = [0] * len(links)
    for start in range(len(links)):
        if not sizes[start]:
            part = list(reached(links, start))
            for node in part:
                sizes[node] = len(part)
    return sizes


def reached(links: Links, start: int) -> Iterator[int]:
    seen = {start}  # a set is safe here, because it is never iterated
    front = [start]
    while front:
        yield from front
        onward = []
        for node in front:
            for neighbour in links[node]:
                if neighbour not in seen:
                    seen.add(neighbour)
                    onward.append(neighbour)
        front = onward
