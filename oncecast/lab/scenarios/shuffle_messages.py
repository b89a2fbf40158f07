"""The messages and the timer of the shuffle scenario."""

from __future__ import annotations

from oncecast.kernel.protocol import NodeId, Value


class Walk(Value, tag="Walk"):
    origin: NodeId
    steps: int
    sample: tuple[NodeId, ...]


class Return(Value, tag="Return"):
    sample: tuple[NodeId, ...]


class Tick(Value):
    pass
