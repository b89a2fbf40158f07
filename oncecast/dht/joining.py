"""Get a position onto a ring: join one, start one, or find a lost one again."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from oncecast.dht.identifiers import Position
from oncecast.dht.lookups import Lookups
from oncecast.dht.member import Member
from oncecast.dht.messages import Notify, Stabilize
from oncecast.dht.ranges import Links, Ranges
from oncecast.dht.stabilization import Stabilization
from oncecast.kernel.protocol import NodeId, Protocol

LOST_CHANCE = 0.1  # probability per stabilize period that a node looks for a lost node
LOST_MAX = 16  # maximum number of lost nodes to remember


class Joining:
    """Finds the member before our position, copies its list and makes our position a member."""

    def __init__(
        self,
        protocol: Protocol,
        contacts: tuple[NodeId, ...],
        lookups: Lookups,
        stabilization: Stabilization,
        ranges: Ranges,
        links: Links,
    ) -> None:
        self._protocol, self.contacts, self._lookups = protocol, contacts, lookups
        self._stabilization, self._ranges, self._links = stabilization, ranges, links

    def start_ring(self, member: Member) -> None:
        member.joined = member.settled = member.recognized = True
        self._enter(member)

    def join(self, member: Member) -> None:
        joined = partial(self.joined, member)
        self._lookups.look_up(member.position.id, joined, contacts=self.contacts, itself=True)

    def joined(self, member: Member, before: Position, successors: tuple[Position, ...]) -> None:
        head = successors[0]
        if head.id == member.position.id and head.node != self._protocol.me:
            # Another node holds our position. Try again later, in case that node has gone.
            self._protocol.later(self._stabilization.every, Stabilize(member.position.id))
            return
        member.join(before, successors)
        self._enter(member)

    def _enter(self, member: Member) -> None:
        self._ranges.announce(member)
        self._stabilization.schedule(member)
        self._stabilization.stabilize(member)
        self._links.update()


class Reunion:
    """Looks for nodes that this node has lost, so that separate rings merge again."""

    def __init__(self, protocol: Protocol, lookups: Lookups, lost: Iterable[NodeId]) -> None:
        self._protocol, self._lookups = protocol, lookups
        self.lost: dict[NodeId, None] = dict.fromkeys(tuple(lost)[:LOST_MAX])

    def lose(self, node: NodeId) -> None:
        self.lost[node] = None
        if len(self.lost) > LOST_MAX:
            del self.lost[next(iter(self.lost))]

    def miss(self, node: NodeId) -> None:
        """Remember to ask a node that left our ring without a broken link.

        After many simultaneous failures, the survivors may have formed a separate ring.
        """
        others = [each for each in self.lost if each != node]
        self.lost = dict.fromkeys([node, *others][:LOST_MAX])

    def look(self, member: Member) -> None:
        """Occasionally ask the least recently tried lost node for our position on its ring."""
        if self.lost and self._protocol.rng.random() < LOST_CHANCE:
            node = next(iter(self.lost))
            del self.lost[node]
            self.lost[node] = None
            found = partial(self._found, member, node)
            self._lookups.look_up(
                member.position.id, found, contacts=(node,), itself=True, retry=False
            )

    def _found(
        self, member: Member, node: NodeId, before: Position, successors: tuple[Position, ...]
    ) -> None:
        """Handle a lost node's answer: on its ring, `successors` follow our position."""
        after = successors[0]
        if member.successors and member.successors[0] == after:
            self.lost.pop(node, None)  # the node is on our ring
        elif member.nearer(after):
            member.candidate = after
        elif after.id != member.position.id:
            self._protocol.send(after.node, Notify(after.id, member.position))
