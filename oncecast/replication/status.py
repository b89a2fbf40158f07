"""A read-only view of a replica, for code that only looks: governor, metrics, health, checkers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from oncecast.kernel.protocol import NodeId
from oncecast.replication.ballot import Ballot
from oncecast.replication.events import Change
from oncecast.replication.leader import Leader, Term
from oncecast.replication.messages import Item
from oncecast.replication.options import GroupOptions
from oncecast.replication.quorum import Config, Member
from oncecast.replication.roster import Offered, Roster
from oncecast.replication.state import Fetching, Following, Membership, Progress
from oncecast.replication.values import Values
from oncecast.replication.votes import Range, Votes


def shown(path: str) -> Any:
    """Return a read-only property that shows an attribute of a part."""
    return property(attrgetter(path))


class Status:
    def __init__(
        self,
        options: GroupOptions,
        last_message: Mapping[NodeId, float],  # when each other node was heard last
        membership: Membership,
        progress: Progress,
        following: Following,
        values: Values,
        votes: Votes,
        fetching: Fetching,
        roster: Roster,
        leader: Leader,
    ) -> None:
        self.options, self.last_message = options, last_message
        self._membership, self._progress, self._following = membership, progress, following
        self._values, self._votes, self._fetching = values, votes, fetching
        self._roster, self._leader = roster, leader

    now: float = shown("_following.io.now")
    me: NodeId = shown("_membership.me")
    incarnation: int = shown("_membership.incarnation")
    config: Config = shown("_membership.history.last")
    self_as_member: Member = shown("_membership.self_as_member")
    is_member: bool = shown("_membership.is_member")
    contacts: tuple[NodeId, ...] = shown("_membership.contacts")
    nodes: Callable[[], tuple[NodeId, ...]] = shown("_membership.nodes")
    others: Callable[[], list[NodeId]] = shown("_membership.others")

    leader: NodeId = shown("_following.leader")
    heard: float = shown("_following.heard")
    leads: Callable[[float], bool] = shown("_leader.leads")
    term: Term | None = shown("_leader.term")
    silent: Mapping[NodeId, None] = shown("_roster.silent")
    reported: Mapping[Member, int] = shown("_roster.reported")
    offers: Mapping[NodeId, Offered] = shown("_roster.offers")
    changes: Sequence[Change] = shown("_roster.changes")
    absent: Callable[[NodeId], bool] = shown("_roster.absent")
    reborn: Callable[[NodeId], bool] = shown("_roster.reborn")

    applied: int = shown("_progress.applied")
    certain: int = shown("_progress.certain")
    known: int = shown("_progress.known")
    learned: Mapping[int, None] = shown("_progress.learned")
    chain: int = shown("_progress.chain")
    holes: Mapping[int, object] = shown("_fetching.holes")
    kept: int = shown("_values.kept")
    storing: Sequence[object] = shown("_values.storing")
    readable: Callable[[int], Item | None] = shown("_values.readable")
    first_record: Callable[[int], int | None] = shown("_values.index.lowest")

    promised: Ballot = shown("_votes.promised")
    votes: Mapping[int, Ballot] = shown("_votes.ballots")
    replaced: int = shown("_votes.replaced")
    lost: Sequence[Range] = shown("_votes.lost")
    damage: str = shown("_votes.damage")
