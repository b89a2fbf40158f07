"""Answer the questions that other members ask during a lookup.

An answer is certain only if `Member.owns` says so. A member that may own the key, and knows none
nearer, answers with a hint. Lookups therefore end even while links are cut.
"""

from __future__ import annotations

from oncecast.dht.calls import Counters
from oncecast.dht.identifiers import Key, up_to
from oncecast.dht.member import Members, Ownership
from oncecast.dht.messages import Confirm, Found, Locate, Near, Nearer, Unsure
from oncecast.dht.ranges import Ranges
from oncecast.dht.stabilization import Stabilization
from oncecast.kernel.protocol import NodeId, Protocol

# Maximum positions per answer; the farther positions are used if the nearest nodes are dead.
NEARER_MAX = 16


class Responder:
    def __init__(
        self,
        protocol: Protocol,
        members: Members,
        stabilization: Stabilization,
        ranges: Ranges,
        counters: Counters,
    ) -> None:
        self._protocol, self._members, self._stabilization = protocol, members, stabilization
        self._ranges, self._counters = ranges, counters

    def answer_locate(self, sender: NodeId, message: Locate) -> None:
        avoid = dict.fromkeys(message.avoid)
        answer = self.locate(message.number, message.key, avoid, message.itself)
        self._protocol.send(sender, answer)

    def locate(
        self, number: int, key: Key, avoid: dict[NodeId, None], itself: bool
    ) -> Near | Nearer:
        """Return the member before `key` if it is known, else known positions nearer to `key`."""
        member = self._members.before(key)
        if member is None:
            return Nearer(number, ())
        if member.is_before(key):
            if itself:
                self._stabilization.stabilize(member)
            return Near(number, member.position, member.successors)
        if not itself and (listed := member.listed_owner(key)) is not None:
            before, at = listed
            if any(each.node not in avoid for each in member.successors[at:]):
                return Near(number, before, member.successors[at:])
        nearer = member.preceding(key, NEARER_MAX, avoid)
        if itself and not nearer:
            self._stabilization.stabilize(member)  # the sender could not reach our successor
        return Nearer(number, nearer)

    def answer_confirm(self, sender: NodeId, message: Confirm) -> None:
        member = self._members.at(message.at)
        if member is None or not member.joined:
            # The sender asked an earlier incarnation of this node, which counts as dead.
            self._counters.dropped += 1
            return
        self._ranges.check_predecessor(member)
        number, before = message.number, member.predecessor
        owns = member.owns(message.key, message.via)
        if owns is Ownership.CERTAIN:
            self._protocol.send(sender, Found(number))
        elif owns is Ownership.HINT:
            self._protocol.send(sender, Found(number, certain=False))
        elif not member.settled or before is None:
            self._protocol.send(sender, Unsure(number))
        elif not up_to(message.via, message.key, message.at):
            self._protocol.send(sender, Nearer(number, ()))
        elif before.node in message.avoid:
            self._protocol.send(sender, Unsure(number))
            self._stabilization.doubt_predecessor(member)
        else:
            self._protocol.send(sender, Nearer(number, (before,)))
