"""Show why a Chord path is slightly shorter than 1/2 log2 N, by varying the spacing of ids.

No messages are sent: a walk follows the tables of the members. If ids are evenly spaced, a walk
takes 1/2 log2 N hops. If each id is moved a little, half of the fingers point one node further. The
walk is then shorter by the same amount for any number of nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from statistics import fmean

from oncecast.dht.identifiers import BITS, BYTES, Key, Position
from oncecast.dht.member import Member
from oncecast.kernel.protocol import NodeId
from oncecast.lab.papers.tables import Cell, Experiment, Must, Table
from oncecast.lab.scenarios.chord_steady import Steady

WALKS = 40_000
RINGS_MAX = 50
EXACT = 0.05  # the error after this many walks, in hops

Ids = Callable[[int, Random], list[int]]


def evenly(nodes: int, rng: Random) -> list[int]:
    return [index * (2**BITS // nodes) for index in range(nodes)]


def nearly_evenly(nodes: int, rng: Random) -> list[int]:
    """Return evenly spaced ids, each moved by up to a thousandth of a gap."""
    return [id + rng.randrange(2**BITS // nodes // 1000) for id in evenly(nodes, rng)]


def at_random(nodes: int, rng: Random) -> list[int]:
    return [rng.getrandbits(BITS) for _ in range(nodes)]


KINDS: tuple[Ids, ...] = (evenly, nearly_evenly, at_random)


def spacing(experiment: Experiment) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for bits in range(6, 13, 2):
        nodes = 2**bits
        if nodes > (experiment.nodes or nodes):
            break
        experiment.say(f"walks, {nodes} nodes")
        rng = Random(f"{experiment.seed}/walks")
        means = [mean_walk(nodes, kind, rng) - bits / 2 for kind in KINDS]
        rows.append((nodes, bits / 2, *(round(each, 3) for each in means), round(bits / nodes, 3)))
    return Table(
        title="hops above 1/2 log2 N, by the spacing of ids",
        columns=(
            "nodes",
            "1/2 log2 N",
            "evenly",
            "moved by 1/1000",
            "random",
            "saved by own keys",
        ),
        rows=tuple(rows),
        must=(
            Must(
                "no difference with evenly spaced ids",
                all(abs(row[2]) < EXACT for row in rows),  # type: ignore[arg-type]
            ),
        ),
        notes=(
            f"each value is the mean of {WALKS:,} walks to the member before the key",
            "saved by own keys: a walk to one of a node's own keys takes log2 N hops around the "
            "ring, but a real lookup takes none",
        ),
    )


def mean_walk(nodes: int, kind: Ids, rng: Random) -> float:
    rings = max(1, min(RINGS_MAX, 2**12 // nodes))
    hops: list[int] = []
    for _ in range(rings):
        members = ring_of(kind(nodes, rng))
        ids = list(members)
        hops += [
            walk(members, rng.choice(ids), Key(rng.randbytes(BYTES))) for _ in range(WALKS // rings)
        ]
    return fmean(hops)


def ring_of(ids: list[int]) -> dict[Key, Member]:
    positions = [Position(Key(id.to_bytes(BYTES)), NodeId(f"n{id}")) for id in ids]
    steady = Steady(positions)
    return {position.id: steady.member(position, successors_max=1) for position in positions}


def walk(members: dict[Key, Member], start: Key, key: Key) -> int:
    member, hops = members[start], 0
    while not member.is_before(key):
        (nearest,) = member.preceding(key, 1)
        member = members[nearest.id]
        hops += 1
    return hops
