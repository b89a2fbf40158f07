"""Ballots are totally ordered, and no two nodes ever use the same ballot."""

from __future__ import annotations

from typing import NamedTuple

from oncecast.kernel.protocol import NodeId


class Ballot(NamedTuple):
    """The higher round wins. Within a round, the greater node name wins."""

    round: int
    node: NodeId


BOTTOM = Ballot(0, NodeId(""))
STEP = 1 << 32  # number of rounds; no group holds that many elections while a node is offline
ROUND_MAX = 1 << 62  # integers have at most 64 bits on the wire and in the log


def above(ballot: Ballot, me: NodeId) -> Ballot:
    """Return this node's lowest ballot above `ballot`."""
    return Ballot(ballot.round + 1, me)
