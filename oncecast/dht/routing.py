"""Route payloads to the owner of a key, one hop at a time."""

from __future__ import annotations

from oncecast.dht.calls import Calls, Counters
from oncecast.dht.events import Route, Routed
from oncecast.dht.identifiers import Key, Position, up_to
from oncecast.dht.member import Member, Members, Ownership
from oncecast.dht.messages import Hop, Hopped
from oncecast.dht.ranges import Ranges
from oncecast.kernel.protocol import NodeId, Protocol


class Hopping:
    """Call: pass a payload to the next node, and to others while none answers.

    All these calls have the same number. The first answer ends them.
    """

    def __init__(self, number: int, key: Key, payload: bytes) -> None:
        self.number, self.key, self.payload = number, key, payload
        self.avoid: dict[NodeId, None] = {}
        # Whether a second copy has arrived, which is sent once this copy is answered.
        self.came_again = False


class Routing:
    def __init__(
        self,
        protocol: Protocol,
        members: Members,
        calls: Calls,
        ranges: Ranges,
        counters: Counters,
        payloads_max: int,
    ) -> None:
        self._protocol, self._members, self._calls = protocol, members, calls
        self._ranges, self._counters, self._payloads_max = ranges, counters, payloads_max
        self.in_flight: dict[int, Hopping] = {}
        self._by_payload: dict[tuple[Key, bytes], Hopping] = {}

    def route(self, request: Route) -> None:
        if len(self.in_flight) >= self._payloads_max:
            self._counters.refused += 1
            return
        hopping = self._take(request.key, request.payload)
        if hopping is not None:
            self._pass_on(hopping)

    def _take(self, key: Key, payload: bytes) -> Hopping | None:
        """Take over a payload. Return None if a copy of it is already in flight here.

        If answers take longer than `answer_within`, each node on the route sends another copy.
        Without this check, the copies would multiply.
        """
        known = self._by_payload.get((key, payload))
        if known is not None:
            known.came_again = True
            return None
        hopping = Hopping(self._calls.next_number(), key, payload)
        self.in_flight[hopping.number] = self._by_payload[key, payload] = hopping
        return hopping

    def _pass_on(self, hopping: Hopping) -> None:
        """Send a payload to the owner if our list has it, else to the last node before the key."""
        key, me = hopping.key, self._protocol.me
        owns = self._members.own(key)
        if owns is not Ownership.NO:
            self._end(hopping)
            root = owns is Ownership.CERTAIN
            self._protocol.emit(Routed(key, hopping.payload, me, root, hint=not root))
            return
        member = self._members.before(key)
        step = None if member is None else next_hop(member, key, hopping.avoid, me)
        if step is None:
            hopping.avoid.clear()
            self._calls.retry_later(hopping.number)
            return
        position, via = step
        self._send(hopping, position.node, via)

    def _send(self, hopping: Hopping, node: NodeId, via: Key) -> None:
        hop = Hop(hopping.key, hopping.payload, hopping.number, via)
        self._calls.call(node, hopping.number, hop, hopping)

    def retry(self, number: int) -> None:
        if number in self.in_flight:
            self._pass_on(self.in_flight[number])

    def unanswered(self, hopping: Hopping, peer: NodeId) -> None:
        hopping.avoid[peer] = None
        self._pass_on(hopping)

    def hop(self, sender: NodeId, message: Hop) -> None:
        """Accept a payload from another node and acknowledge it."""
        key, payload, number, via = message.key, message.payload, message.number, message.via
        if self._members.before(key) is None or len(self.in_flight) >= self._payloads_max:
            self._counters.dropped += 1  # the sender gets no answer and tries another node
            return
        self._protocol.send(sender, Hopped(number))
        root = self._members.own(key) is Ownership.CERTAIN
        meant = None if root else self._meant(key, via)
        hint = meant is not None and meant.owns(key, via) is Ownership.HINT
        if meant is None or hint:
            self._protocol.emit(Routed(key, payload, sender, root, hint))
            return
        hopping = self._take(key, payload)
        if hopping is None:
            return
        before = meant.predecessor
        # The key lies between our predecessor and us, so no other node knows the owner better. If
        # we passed the payload on, it would go around the ring.
        if before is not None and not up_to(before.id, key, meant.position.id):
            self._send(hopping, before.node, via)
        else:
            self._calls.retry_later(hopping.number)  # by then we know our neighbours better

    def _meant(self, key: Key, via: Key) -> Member | None:
        """Return the member here that the sender believes to be the owner, or None."""
        for member in self._members:
            if member.joined and up_to(via, key, member.position.id):
                self._ranges.check_predecessor(member)
                return member
        return None

    def hopped(self, number: int) -> None:
        """Stop routing a payload that another node has accepted, even if its answer is late."""
        hopping = self.in_flight.get(number)
        if hopping is None:
            self._counters.dropped += 1
            return
        self._calls.take_late(number)
        self._end(hopping)
        if hopping.came_again:  # perhaps the other node has sent the payload back to us
            self.route(Route(hopping.key, hopping.payload))

    def _end(self, hopping: Hopping) -> None:
        del self.in_flight[hopping.number], self._by_payload[hopping.key, hopping.payload]


def next_hop(
    member: Member, key: Key, avoid: dict[NodeId, None], me: NodeId
) -> tuple[Position, Key] | None:
    """Return the next position for a payload and the id of the member before it, or None."""
    listed = member.listed_owner(key)
    if listed is not None:
        before, at = listed
        for position in member.successors[at:]:
            if position.node not in avoid:
                return position, before.id
    positions = member.preceding(key, 1, {**avoid, me: None})
    return (positions[0], member.position.id) if positions else None
