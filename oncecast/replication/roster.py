"""The leader's view of other nodes: silent members, and newcomers waiting to join."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import NamedTuple

from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.replication.events import Change, NotSeated
from oncecast.replication.options import GroupOptions
from oncecast.replication.quorum import Config, Member
from oncecast.replication.state import Membership


class Offered(NamedTuple):
    """A node that offers to become a member, and is `lag` slots behind.

    `missed` slots of these were already chosen one Beat earlier.
    """

    member: Member
    applied: int
    at: float
    lag: int = 0
    level: int = 1  # the highest entry level that the node can read
    missed: int = 0


TURNED_AWAY_MAX = 64  # maximum number of refused nodes to remember, so that each is reported once


class Roster:
    def __init__(self, io: Protocol, options: GroupOptions, membership: Membership) -> None:
        self.io, self.options, self.membership = io, options, membership
        self.offers: dict[NodeId, Offered] = {}
        self.newcomer = NodeId("")  # the node that the leader is bringing up to date
        self.newcomer_since = 0.0
        self.newcomer_live = False  # whether the newcomer also gets each proposal
        # Time and last applied slot of each recent heartbeat.
        self.beats: deque[tuple[float, int]] = deque(maxlen=8)
        self.changes: list[Change] = []  # requested changes that are still pending
        self.last_heard: dict[NodeId, float] = {}
        # The last slot that each member reported as applied and stored.
        self.reported: dict[Member, int] = {}
        self.silent: dict[NodeId, None] = {}
        self.levels: dict[Member, int] = {}  # highest level that each member reported in this term
        # The known and the needed level of each refused node, as last reported.
        self._turned_away: dict[NodeId, tuple[int, int]] = {}

    def note_offer(
        self, member: Member, applied: int, chosen: int, level: int = 1, earlier: int | None = None
    ) -> None:
        """Record that a node had applied `applied` of the slots up to `chosen`.

        The slots up to `earlier` were chosen one Beat earlier.
        """
        lag, missed = chosen - applied, (chosen if earlier is None else earlier) - applied
        offered = Offered(member, applied, self.io.now, max(0, lag), level, max(0, missed))
        self.offers[member.node] = offered
        if member.node == self.newcomer:
            self.newcomer_live = self._may_follow(offered)

    def turn_away(self, node: NodeId, known: int, level: int) -> None:
        """Refuse a node that cannot read all of the group's entries, and report it once."""
        self.offers.pop(node, None)
        if self._turned_away.pop(node, None) != (known, level):
            self.io.emit(NotSeated(node, known, level), after=0)
        self._turned_away[node] = (known, level)
        if len(self._turned_away) > TURNED_AWAY_MAX:
            del self._turned_away[next(iter(self._turned_away))]

    def common_level(self) -> int:
        """Return the highest level that all members can read, or 0 if one of them is absent."""
        config = self.membership.config
        return min(0 if self.absent(each.node) else self.level_of(each) for each in config.members)

    def level_of(self, member: Member) -> int:
        """Return the highest level that a member can read, or 0 if it has not reported one."""
        own = member.node == self.membership.me
        return self.membership.known_level if own else self.levels.get(member, 0)

    def begin_term(self) -> None:
        """Drop members' reports from an earlier term of this replica."""
        self.reported.clear()
        self.levels.clear()

    def _may_follow(self, offered: Offered) -> bool:
        """Return whether a node is close enough to accept new proposals."""
        return offered.lag <= self.options.ahead_slots // 2

    def choose_newcomer(self, node: NodeId) -> None:
        self.newcomer, self.newcomer_since = node, self.io.now
        self.newcomer_live = node in self.offers and self._may_follow(self.offers[node])

    def caught_up(self, node: NodeId) -> bool:
        """Return whether a node has applied nearly all slots that it knows of.

        Under load, a newcomer never has all decided slots. A lone leader sends it no proposals, so
        the newcomer fetches every slot and stays a round trip behind.
        """
        offered, near = self.offers[node], self.options.ahead_slots // 64
        if self.membership.others():
            return offered.lag <= near
        return self._may_follow(offered) and offered.missed <= near

    def chosen_before(self, stamp: float, applied: int) -> int:
        """Return the last chosen slot that the Beat before the one sent at `stamp` reported."""
        pairs = pairwise(self.beats)
        return next((known for (_, known), (at, _) in pairs if at == stamp), applied)

    def chosen_at(self, stamp: float, applied: int) -> int:
        """Return the last chosen slot that the Beat sent at time `stamp` reported."""
        return next((known for at, known in self.beats if at == stamp), applied)

    def audience(self) -> list[NodeId]:
        """Return the nodes that get each Beat."""
        return self._with_newcomer(self.newcomer)

    def followers(self) -> list[NodeId]:
        """Return the nodes that get each proposal, unless this replica is the only member."""
        return self._with_newcomer(self.newcomer if self.newcomer_live else NodeId(""))

    def _with_newcomer(self, node: NodeId) -> list[NodeId]:
        others = self.membership.others()
        return [*others, node] if node and node not in others else others

    def forget_old(self) -> None:
        """Drop nodes that stopped offering themselves, and the time of their last message."""
        now, limit = self.io.now, 2 * self.options.suspicion
        for node in [node for node, each in self.offers.items() if now > each.at + limit]:
            del self.offers[node]
        known = {*self.offers, *self.membership.nodes(), *self.membership.others()}
        for node in [node for node in self.last_heard if node not in known]:
            del self.last_heard[node]

    def has_new_incarnation(self, node: NodeId) -> bool:
        """Return whether a node that is a member offers itself in another incarnation."""
        offered, member = self.offers.get(node), self.membership.config.member(node)
        return offered is not None and member not in (None, offered.member)

    def absent(self, node: NodeId) -> bool:
        """Return whether a member may never vote again.

        A node that offers itself in another incarnation counts immediately. Otherwise another
        member could be removed before the old incarnation counts as silent.
        """
        return node in self.silent or self.has_new_incarnation(node)

    def lost_disk(self) -> NodeId:
        """Return a silent member that offers itself in another incarnation, or "".

        While the old incarnation still sends messages, the offer is outdated.
        """
        return next(
            (
                node
                for node in self.offers
                if node in self.silent and self.has_new_incarnation(node)
            ),
            NodeId(""),
        )

    def viable(self, config: Config) -> bool:
        """Return whether a majority of the members in `config` is present."""
        return config.agreed([each for each in config.members if not self.absent(each.node)])

    def informed(self, left: Config) -> bool:
        """Return whether a majority of the remaining members has all the slots that it needs.

        The members need all slots decided before the current membership. Enough of them have stored
        the later slots, because a majority of the current membership has.
        """
        return self.have(left, self.membership.history.since)

    def have(self, left: Config, slot: int) -> bool:
        """Return whether a majority of the remaining members has all slots up to `slot`."""
        current = [each for each in left.members if self.reported.get(each, 0) >= slot]
        return left.agreed([*current, self.membership.self_as_member])

    def reconfigured(self) -> None:
        """Forget nodes that are no longer members, and offers from new members."""
        config = self.membership.config
        for node in [node for node in self.silent if node not in config.nodes()]:
            del self.silent[node]
        for member in config.members:
            self.offers.pop(member.node, None)
        for node, offered in list(self.offers.items()):
            if offered.level < config.level:
                self.turn_away(node, offered.level, config.level)
        for known in (self.reported, self.levels):
            for gone in [member for member in known if member not in config.members]:
                del known[gone]
