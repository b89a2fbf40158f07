"""Small rings for tests. Nodes are named after their positions."""

from __future__ import annotations

from random import Random
from typing import Any

from oncecast.dht.chord import Chord
from oncecast.dht.identifiers import BYTES, Key, Position
from oncecast.dht.member import Member
from oncecast.kernel.protocol import NodeId

# Positions are given by their first byte: p(0x40) is at a quarter of the circle.


def k(first: int) -> Key:
    return Key(bytes([first]) + bytes(BYTES - 1))


def p(first: int) -> Position:
    return Position(k(first), NodeId(f"n{first:02x}"))


def member_at(
    at: int, successors: tuple[int, ...], predecessor: int | None = None, successors_max: int = 3
) -> Member:
    member = Member(p(at), successors_max)
    member.joined = member.settled = member.recognized = True
    member.successors = tuple(map(p, successors))
    member.predecessor = None if predecessor is None else p(predecessor)
    return member


class Dice(Random):
    """A random generator that makes Chord number its calls from 1, so that tests can name them."""

    def getrandbits(self, k: int) -> int:
        return 0


def chord_at(
    at: int, successors: tuple[int, ...], predecessor: int | None = None, **options: Any
) -> Chord:
    """Return a started ring member with at most `successors_max` successors."""
    member = member_at(at, successors, predecessor, options.pop("successors_max", 3))
    member.settled = member.recognized = options.pop("settled", True)
    chord = Chord(p(at).node, Dice(1), members=(member,), **{"links": False} | options)
    chord.start()
    chord.drain()
    return chord


def only(chord: Chord) -> Member:
    (member,) = chord.members
    return member
