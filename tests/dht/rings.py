"""Small rings for tests: nodes named by where they are."""

from __future__ import annotations

from random import Random
from typing import Any

from oncecast.dht.chord import Chord
from oncecast.dht.identifiers import BYTES, Key, Place
from oncecast.dht.member import Member
from oncecast.kernel.protocol import NodeId

# Positions by their first byte, and nodes named after them: p(0x40) is at a quarter of the ring.


def k(first: int) -> Key:
    return Key(bytes([first]) + bytes(BYTES - 1))


def p(first: int) -> Place:
    return Place(k(first), NodeId(f"n{first:02x}"))


def member_at(
    at: int, successors: tuple[int, ...], predecessor: int | None = None, successors_max: int = 3
) -> Member:
    member = Member(p(at), successors_max)
    member.joined = member.settled = member.recognized = True
    member.successors = tuple(map(p, successors))
    member.predecessor = None if predecessor is None else p(predecessor)
    return member


def counting_from_one(chord: Chord) -> Chord:
    """So that tests can name the numbers of its calls."""
    chord._last_number = 0
    return chord


def chord_at(
    at: int, successors: tuple[int, ...], predecessor: int | None = None, **options: Any
) -> Chord:
    """One node, and what it believes of the ring."""
    options = {"successors_max": 3, "links": False} | options
    chord = counting_from_one(Chord(p(at).node, Random(1), **options))
    chord.members = {k(at): member_at(at, successors, predecessor, options["successors_max"])}
    chord.ranges = {at: member.low for at, member in chord.members.items()}
    return chord


def only(chord: Chord) -> Member:
    (member,) = chord.members.values()
    return member
