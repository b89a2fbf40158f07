"""The state of a Synod leader under one ballot."""

from __future__ import annotations

from oncecast.coordination.protocols.synod_messages import Vote
from oncecast.kernel.protocol import NodeId
from oncecast.replication.ballot import Ballot

Key = tuple[str, int]  # series and number


class Leadership:
    """Promises, votes and proposals under one ballot."""

    def __init__(self, ballot: Ballot) -> None:
        self.ballot = ballot
        self.promises: dict[NodeId, None] = {}
        self.votes: dict[Key, Vote] = {}  # reported by its promises
        # Petitions that arrived before a majority had promised: value and requester.
        self.pending: dict[Key, tuple[str, NodeId]] = {}
        self.proposals: dict[Key, Proposal] = {}

    def note_promise(self, node: NodeId, votes: tuple[Vote, ...]) -> None:
        """Count a promise. Of several votes for a number, keep the one with the highest ballot."""
        self.promises[node] = None
        for vote in votes:
            key = vote.series, vote.number
            if key not in self.votes or self.votes[key].ballot < vote.ballot:
                self.votes[key] = vote


class Proposal:
    """The only value that a leader proposes for a key under its ballot."""

    __slots__ = ("askers", "value", "voters")

    def __init__(self, value: str) -> None:
        self.value = value
        self.voters: dict[NodeId, None] = {}
        self.askers: dict[NodeId, None] = {}
