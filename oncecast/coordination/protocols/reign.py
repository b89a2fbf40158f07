"""What a leader of the Synod knows under one ballot."""

from __future__ import annotations

from oncecast.coordination.protocols.synod_messages import Vote
from oncecast.kernel.protocol import NodeId
from oncecast.replication.ballot import Ballot

Key = tuple[str, int]  # series and number


class Reign:
    """What a leader knows under its ballot."""

    def __init__(self, ballot: Ballot) -> None:
        self.ballot = ballot
        self.promises: dict[NodeId, None] = {}
        self.votes: dict[Key, Vote] = {}  # that its promises told of
        # Petitions that came before a majority had promised, and whose they are.
        self.wishes: dict[Key, tuple[str, NodeId]] = {}
        self.proposals: dict[Key, Proposal] = {}

    def note_promise(self, node: NodeId, votes: tuple[Vote, ...]) -> None:
        """Of several votes for a number the one with the highest ballot binds."""
        self.promises[node] = None
        for vote in votes:
            key = vote.series, vote.number
            if key not in self.votes or self.votes[key].ballot < vote.ballot:
                self.votes[key] = vote


class Proposal:
    """One value a key and ballot, for ever."""

    __slots__ = ("askers", "value", "voters")

    def __init__(self, value: str) -> None:
        self.value = value
        self.voters: dict[NodeId, None] = {}
        self.askers: dict[NodeId, None] = {}
