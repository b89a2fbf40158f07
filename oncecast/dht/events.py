"""Requests and events of Chord, which finds the owner of a key.

application   JoinTree, LeaveTree, Multicast ↓   Multicasted ↑
Scribe        Route ↓   Routed, RangeChanged ↑
Chord         (the application may also ask FindRoot and observe RootFound)
"""

from __future__ import annotations

from oncecast.dht.identifiers import Key
from oncecast.kernel.protocol import NodeId, Value


class FindRoot(Value):
    """Request: find the owner of `key`. Chord retries until it has an answer."""

    key: Key


class RootFound(Value):
    """The owner of `key`, as the answer to FindRoot."""

    key: Key
    root: NodeId
    hops: int  # hops to the member before the root, or directly to the root
    timeouts: int  # number of nodes that did not answer
    doubts: int = 0  # number of nodes asked because an owner was unsure
    certain: bool = True  # whether the root is sure that it owns the key


class Route(Value):
    """Request: send `payload` one hop towards the owner of `key`.

    The next node emits Routed. If the payload must travel further, an observer at that node makes
    another Route request.
    """

    key: Key
    payload: bytes


class Routed(Value):
    """A payload on its way to the owner of `key` has arrived at this node.

    If `root` is set, this node is the owner. If `hint` is set, it may be, and knows no better
    candidate.
    """

    key: Key
    payload: bytes
    sender: NodeId  # this node if the payload needed no hop
    root: bool
    hint: bool = False


class RangeChanged(Value):
    """Position `at` now owns the keys after `after`, up to and including `at`.

    `after` is None while the position is unsure which keys it owns.
    """

    at: Key
    after: Key | None
