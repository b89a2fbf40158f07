"""The orderly end of a replica: before it stops, another one leads.

A leader that stops without a word leaves its group without one for the suspicion time. So it hands
over first, to the follower that has applied most, and goes on as an acceptor until it hears of the
next leader. If the link to that follower breaks, it asks the next one.
"""

from __future__ import annotations

from oncecast.kernel.protocol import NodeId
from oncecast.replication.ballot import BOTTOM
from oncecast.replication.events import Retired
from oncecast.replication.messages import Release
from oncecast.replication.seats import Seats


class Retirement:
    """What becomes of a Retire."""

    def __init__(self, group: Seats) -> None:
        self._group = group
        self._ballot = BOTTOM  # with which this replica led
        self._asked: dict[NodeId, None] = {}  # followers, in turn

    def begin(self) -> None:
        group, reign = self._group, self._group.reign
        group.retired = True
        if reign is None or not reign.acting:
            if reign is not None:
                group.step_down()
            group.emit(Retired(group.leader), after=0)
            return
        heir = self._next()
        if heir:
            self._ballot = reign.ballot
            group.resign(reign, heir)
            group.watch(heir)
        else:
            group.emit(Retired(NodeId("")), after=0)  # it leads to the end

    def _next(self) -> NodeId:
        """Return the follower that has applied most, of those not asked yet, or nobody."""
        group = self._group
        left = [
            member
            for member in group.config.members
            if member.node not in (group.me, *group.silent, *self._asked)
        ]
        if not left:
            return NodeId("")
        best = max(left, key=lambda member: group.reported.get(member, 0)).node
        self._asked[best] = None
        return best

    def lost(self, node: NodeId) -> None:
        """The link to a follower is gone: it will not lead."""
        group = self._group
        if node not in self._asked or group.leader:
            return
        heir = self._next()
        if not heir:
            group.emit(Retired(NodeId("")), after=0)
            return
        group.watch(heir)
        for other in group.others():
            group.send(other, Release(self._ballot, heir), after=0)

    def followed(self) -> None:
        """Another one leads."""
        if self._asked:
            for node in self._asked:
                self._group.unwatch(node)
            self._asked.clear()
            self._group.emit(Retired(self._group.leader), after=0)
