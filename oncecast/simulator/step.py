"""One step of a node, as a trace records it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from oncecast.kernel.protocol import Effect, NodeId


class Step(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One input of one node, with its subject and its effects."""

    time: float
    node: NodeId
    kind: str  # start, request, receive, wake, down; or a fault: crash, pause, ...
    subject: Any
    effects: Sequence[Effect]
