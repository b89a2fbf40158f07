"""Detect that this node is also a member of another group, and stop the replica.

A node that has lost its disk and was not told to join founds a new group. The leader of the old
group still sends Beats to it. A single message proves nothing, because any node can send one. The
replica asks that leader (Attest), which asks the other members of its group. Each of them tells the
replica which members it knows (Guide). If a majority of the old group names this node, the replica
stops.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from oncecast.errors import Diverged
from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.replication.messages import Attest, Guide
from oncecast.replication.options import GroupOptions
from oncecast.replication.quorum import NO_MEMBERS, SIZE_MAX, Config
from oncecast.replication.state import Following, Membership

NO_NODE = NodeId("")


@dataclass(eq=False)
class OtherGroup:
    io: Protocol
    options: GroupOptions
    membership: Membership
    following: Following
    leader: NodeId = NO_NODE  # the node that claims to lead a group including this node
    asked: float = 0.0
    config: Config = NO_MEMBERS  # the members that the other leader names
    witnesses: dict[NodeId, None] = field(default_factory=dict)

    # -- the replica that hears from another group --

    def on_beat(self, sender: NodeId) -> None:
        """Ask the leader of another group for its members, one leader at a time."""
        if self.awaits() or not self._founded_here or self._is_ours(sender):
            return
        self.leader, self.asked, self.config = sender, self.io.now, NO_MEMBERS
        self.witnesses.clear()
        self.io.send(sender, Attest(self.membership.me), after=0)

    @property
    def _founded_here(self) -> bool:
        return self.membership.config.group == self.membership.incarnation

    def _is_ours(self, node: NodeId) -> bool:
        """Return whether a node is in this group and so cannot vouch for another one."""
        return node in self.membership.history.named

    def awaits(self) -> bool:
        return bool(self.leader) and self.io.now < self.asked + self.options.suspicion

    def on_guide(self, sender: NodeId, message: Guide) -> None:
        me, nodes = self.membership.me, message.config.nodes()
        if not self.awaits() or self._is_ours(sender):
            return
        if len(nodes) > SIZE_MAX + 1 or not {me, sender} <= set(nodes):
            return
        if sender == self.leader:
            self.config = message.config
        if len(self.witnesses) <= SIZE_MAX:
            self.witnesses[sender] = None
        others = [node for node in self.config.nodes() if node != me and node in self.witnesses]
        if others and len(others) >= self.config.majority:
            raise Diverged(
                f"replica {me}: {self.leader} leads another group that includes this node",
                f"move its data directory aside and restart it with --join {self.leader}",
            )

    # -- the members of the other group --

    def on_attest(self, sender: NodeId, message: Attest) -> None:
        config, node = self.membership.config, message.node
        if config.member(node) is None or node == self.membership.me:
            return
        self.io.send(node, Guide(self.following.leader, config.without_secrets()), after=0)
        if sender == node:
            for other in self.membership.others():
                if other != node:
                    self.io.send(other, message, after=0)
