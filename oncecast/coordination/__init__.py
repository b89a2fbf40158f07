"""Processes on one network act together, without a server: `async with join(...) as node`."""

from oncecast.coordination.errors import CoordinationError, Lapse, NotDeposited, NotReached, Stopped
from oncecast.coordination.node import Node, join
from oncecast.toolkit.fence import Fence, Stale

__all__ = [
    "CoordinationError",
    "Fence",
    "Lapse",
    "Node",
    "NotDeposited",
    "NotReached",
    "Stale",
    "Stopped",
    "join",
]
