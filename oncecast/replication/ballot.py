"""Ballots: who proposes. Totally ordered, and no two nodes ever use the same one."""

from __future__ import annotations

from typing import NamedTuple

from oncecast.kernel.protocol import NodeId


class Ballot(NamedTuple):
    """A later round wins; of the same round the greater name."""

    round: int
    node: NodeId


BOTTOM = Ballot(0, NodeId(""))


def above(ballot: Ballot, me: NodeId) -> Ballot:
    """The lowest ballot of this node that is surely above."""
    return Ballot(ballot.round + 1, me)
