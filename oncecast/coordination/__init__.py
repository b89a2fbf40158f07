"""Groups, leader election, locks, queues and streams without a server: `oncecast.join`."""

from oncecast.coordination.node import Node, join
from oncecast.coordination.protocols.fence import Fence
from oncecast.errors import (
    BadName,
    BadQoS,
    CacheFull,
    CoordinationError,
    Lapse,
    NoCluster,
    NotDeposited,
    NotMatched,
    NotOpen,
    NotReached,
    NotReceived,
    Stale,
    Stopped,
    StreamError,
)
from oncecast.streams.protocols.cache import Sample
from oncecast.streams.protocols.policies import KEEP_ALL, Durability, QoS, Reliability

__all__ = [
    "KEEP_ALL",
    "BadName",
    "BadQoS",
    "CacheFull",
    "CoordinationError",
    "Durability",
    "Fence",
    "Lapse",
    "NoCluster",
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
