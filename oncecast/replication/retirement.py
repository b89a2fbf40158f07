"""Orderly shutdown of a replica: a leader hands over before it stops.

Otherwise the group would have no leader for the suspicion time. The leader hands over to the
follower that has applied the most slots, and keeps voting until the next leader sends a message. If
the link to that follower breaks, the leader asks another follower.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.replication.ballot import BOTTOM, Ballot
from oncecast.replication.events import Retired
from oncecast.replication.leader import Leader
from oncecast.replication.messages import Release
from oncecast.replication.roster import Roster
from oncecast.replication.state import Following, Membership


@dataclass(eq=False)
class Retirement:
    io: Protocol
    membership: Membership
    following: Following
    roster: Roster
    leader: Leader
    ballot: Ballot = BOTTOM  # the ballot of this replica as a leader
    # Followers that this replica has asked to lead.
    asked: dict[NodeId, None] = field(default_factory=dict)

    def begin(self) -> None:
        leader, term = self.leader, self.leader.term
        leader.retired = True
        if term is None or not term.acting:
            if term is not None:
                leader.step_down()
            self.io.emit(Retired(self.following.leader), after=0)
            return
        successor = self._next()
        if successor:
            self.ballot = term.ballot
            leader.resign(term, successor)
            self.io.watch(successor)
        else:
            self.io.emit(Retired(NodeId("")), after=0)  # this replica leads until it stops

    def _next(self) -> NodeId:
        """Return the unasked follower that has applied the most slots, or "" if none is left."""
        membership, roster = self.membership, self.roster
        left = [
            member
            for member in membership.config.members
            if member.node != membership.me
            and member.node not in roster.silent
            and member.node not in self.asked
        ]
        if not left:
            return NodeId("")
        best = max(left, key=lambda member: roster.reported.get(member, 0)).node
        self.asked[best] = None
        return best

    def lost(self, node: NodeId) -> None:
        """Ask another follower if the link to this one is lost before it leads."""
        if node not in self.asked or self.following.leader:
            return
        successor = self._next()
        if not successor:
            self.io.emit(Retired(NodeId("")), after=0)
            return
        self.io.watch(successor)
        for other in self.membership.others():
            self.io.send(other, Release(self.ballot, successor), after=0)

    def followed(self) -> None:
        """Finish the retirement once another replica leads."""
        if self.asked:
            for node in self.asked:
                self.io.unwatch(node)
            self.asked.clear()
            self.io.emit(Retired(self.following.leader), after=0)
