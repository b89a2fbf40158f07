"""A read-only view of a replica for the governor, metrics, health checks and checkers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from oncecast.kernel.protocol import NodeId
from oncecast.replication.ballot import Ballot
from oncecast.replication.events import Change
from oncecast.replication.leader import Leader, Term
from oncecast.replication.messages import Item
from oncecast.replication.options import GroupOptions
from oncecast.replication.quorum import Config, Member
from oncecast.replication.roster import Offered
from oncecast.replication.votes import Range

if TYPE_CHECKING:
    from oncecast.replication.paxos import ReplicaState


def shown(path: str) -> Any:
    """Return a read-only property for the attribute at `path`."""
    return property(attrgetter(path))


class LogStatus:
    """A replica's log: its slots, values and votes."""

    def __init__(self, state: ReplicaState) -> None:
        self._state = state

    certain: int = shown("_state.progress.certain")
    known: int = shown("_state.progress.known")
    learned: Mapping[int, None] = shown("_state.progress.learned")
    chain: int = shown("_state.progress.chain")
    holes: Mapping[int, object] = shown("_state.fetching.holes")
    kept: int = shown("_state.values.kept")
    storing: Sequence[object] = shown("_state.values.storing")
    readable: Callable[[int], Item | None] = shown("_state.values.readable")
    first_record: Callable[[int], int | None] = shown("_state.values.index.lowest")
    promised: Ballot = shown("_state.votes.promised")
    votes: Mapping[int, Ballot] = shown("_state.votes.ballots")
    replaced: int = shown("_state.votes.replaced")
    lost: Sequence[Range] = shown("_state.votes.lost")
    damage: str = shown("_state.votes.damage")
    level_of: Callable[[Member], int] = shown("_state.roster.level_of")


class Status:
    """A replica's log, and the members and leader that it knows."""

    def __init__(
        self,
        options: GroupOptions,
        last_message: Mapping[NodeId, float],  # time of the last message from each other node
        state: ReplicaState,
        leader: Leader,
    ) -> None:
        self.options, self.last_message = options, last_message
        self._state, self._leader = state, leader
        self.log = LogStatus(state)

    now: float = shown("_state.following.io.now")
    applied: int = shown("_state.progress.applied")
    me: NodeId = shown("_state.membership.me")
    incarnation: int = shown("_state.membership.incarnation")
    config: Config = shown("_state.membership.history.last")
    self_as_member: Member = shown("_state.membership.self_as_member")
    is_member: bool = shown("_state.membership.is_member")
    contacts: tuple[NodeId, ...] = shown("_state.membership.contacts")
    nodes: Callable[[], tuple[NodeId, ...]] = shown("_state.membership.nodes")
    others: Callable[[], list[NodeId]] = shown("_state.membership.others")

    leader: NodeId = shown("_state.following.leader")
    heard: float = shown("_state.following.heard")
    leads: Callable[[float], bool] = shown("_leader.leads")
    term: Term | None = shown("_leader.term")
    silent: Mapping[NodeId, None] = shown("_state.roster.silent")
    reported: Mapping[Member, int] = shown("_state.roster.reported")
    offers: Mapping[NodeId, Offered] = shown("_state.roster.offers")
    changes: Sequence[Change] = shown("_state.roster.changes")
    absent: Callable[[NodeId], bool] = shown("_state.roster.absent")
    has_new_incarnation: Callable[[NodeId], bool] = shown("_state.roster.has_new_incarnation")
