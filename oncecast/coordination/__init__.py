"""Processes on one network act together, without a server: `async with join(...) as node`."""

from oncecast.coordination.node import Node, join
from oncecast.coordination.protocols.fence import Fence, Stale
from oncecast.streams.errors import (
    BadName,
    CoordinationError,
    Lapse,
    NoCluster,
    NoRoom,
    NotDeposited,
    NotMatched,
    NotOpen,
    NotReached,
    NotReceived,
    Stopped,
    StreamError,
)
from oncecast.streams.protocols.cache import Sample
from oncecast.streams.protocols.policies import KEEP_ALL, BadQoS, Durability, QoS, Reliability

__all__ = [
    "KEEP_ALL",
    "BadName",
    "BadQoS",
    "CoordinationError",
    "Durability",
    "Fence",
    "Lapse",
    "NoCluster",
    "NoRoom",
    "Node",
    "NotDeposited",
    "NotMatched",
    "NotOpen",
    "NotReached",
    "NotReceived",
    "QoS",
    "Reliability",
    "Sample",
    "Stale",
    "Stopped",
    "StreamError",
    "join",
]
