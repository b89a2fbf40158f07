"""What an overlay looks like as a graph: how clustered, how wide, in how many parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

Links = Sequence[Sequence[int]]  # of each node, the numbers of its neighbours


class Distances(NamedTuple):
    """Over all pairs of which one reaches the other."""

    mean: float
    farthest_mean: float  # hops to the node that is farthest away, as the sender varies
    reached: int  # pairs, those of a node with itself included


def clustering(links: Links) -> float:
    """The mean share of a node's pairs of neighbours that are neighbours themselves."""
    near = [frozenset(each) for each in links]
    total = 0.0
    for each in links:
        pairs = len(each) * (len(each) - 1) // 2
        if pairs:
            total += sum(b in near[a] for a, b in combinations(each, 2)) / pairs
    return total / len(links)


def distances(links: Links) -> Distances:
    """All pairs at once: a node's ball of radius r + 1 is the union of its neighbours' of radius r.

    A ball is one long number with a bit a node, so that ten thousand nodes take seconds.
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
    """For each node, how many are in its part of the graph; links are taken to go both ways."""
    sizes = [0] * len(links)
    for start in range(len(links)):
        if not sizes[start]:
            part = list(reached(links, start))
            for node in part:
                sizes[node] = len(part)
    return sizes


def reached(links: Links, start: int) -> Iterator[int]:
    seen = {start}  # only looked up, never iterated
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
