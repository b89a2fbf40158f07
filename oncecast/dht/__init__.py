"""Chord, a ring in which each key has an owner, and Scribe, a multicast tree for each topic."""

from oncecast.dht.chord import Chord
from oncecast.dht.events import FindRoot, RangeChanged, RootFound, Route, Routed
from oncecast.dht.identifiers import Key, Position, key_of
from oncecast.dht.scribe import Scribe
from oncecast.dht.tree_messages import JoinTree, LeaveTree, Multicast, Multicasted

__all__ = [
    "Chord",
    "FindRoot",
    "JoinTree",
    "Key",
    "LeaveTree",
    "Multicast",
    "Multicasted",
    "Position",
    "RangeChanged",
    "RootFound",
    "Route",
    "Routed",
    "Scribe",
    "key_of",
]
