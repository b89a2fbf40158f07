"""Processes on one network act together, without a server: `async with join(...) as node`."""

from oncecast.coordination.errors import (
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
from oncecast.coordination.node import Node, join
from oncecast.qos.cache import Sample
from oncecast.qos.policies import KEEP_ALL, BadQoS, Durability, QoS, Reliability
from oncecast.toolkit.fence import Fence, Stale

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
