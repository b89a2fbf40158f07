"""A ring on which every key has an owner, and a multicast tree a topic over it."""

from oncecast.dht.chord import Chord
from oncecast.dht.events import FindRoot, RangeChanged, RootFound, Route, Routed
from oncecast.dht.identifiers import Key, Position, key_of
from oncecast.dht.scribe import Scribe
from oncecast.dht.tree import JoinTree, LeaveTree, Multicast, Multicasted

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
