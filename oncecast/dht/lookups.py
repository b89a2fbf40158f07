"""This node's lookups in flight.

A lookup finds the member before the key, which names the owner. If the layer above asked for the
lookup, the owner then confirms that it owns the key. An owner that knows a nearer member names it,
and the lookup asks that member. If that member failed to answer before, the owner first checks
whether it is alive.
"""

from __future__ import annotations

from typing import NamedTuple

from oncecast.dht.calls import Calls, Counters
from oncecast.dht.events import FindRoot, RootFound
from oncecast.dht.identifiers import Key, Position
from oncecast.dht.lookup import Lookup, OnFound
from oncecast.dht.member import Members, Ownership
from oncecast.dht.messages import Confirm, Found, Locate, Near, Nearer, Unsure
from oncecast.dht.responder import Responder
from oncecast.dht.stabilization import HASTE
from oncecast.kernel.protocol import NodeId, Protocol

# A lookup with more steps than an id has bits starts again, because the ring must have changed.
STEPS_MAX = 600
DOUBLINGS = 4  # maximum number of times that the pause after Unsure doubles


class Seeking(NamedTuple):
    """Call: ask a node for the member before the key. `position` is None for a contact."""

    lookup: Lookup
    position: Position | None


class Confirming(NamedTuple):
    """Call: ask the owner to confirm that it owns the key."""

    lookup: Lookup
    owner: Position


class Lookups:
    def __init__(
        self,
        protocol: Protocol,
        members: Members,
        calls: Calls,
        responder: Responder,
        counters: Counters,
        lookups_max: int,
    ) -> None:
        self._protocol, self._members, self._calls = protocol, members, calls
        self._responder, self._counters, self._lookups_max = responder, counters, lookups_max
        self.in_flight: dict[int, Lookup] = {}

    def find_root(self, request: FindRoot) -> None:
        if len(self.in_flight) >= self._lookups_max:
            self._counters.refused += 1
            return
        owns = self._members.own(request.key)
        if owns is Ownership.NO:
            self.look_up(request.key)
        else:
            certain = owns is Ownership.CERTAIN
            self._protocol.emit(RootFound(request.key, self._protocol.me, 0, 0, certain=certain))

    def look_up(
        self,
        key: Key,
        on_found: OnFound | None = None,
        *,
        contacts: tuple[NodeId, ...] = (),
        itself: bool = False,
        retry: bool = True,
    ) -> None:
        """Start a lookup for `on_found`, or for the layer above. `Lookup` explains the options."""
        number = self._calls.next_number()
        lookup = Lookup(number, key, contacts, itself=itself, retry=retry, on_found=on_found)
        self.in_flight[number] = lookup
        self._set_out(lookup)

    def _set_out(self, lookup: Lookup) -> None:
        if not lookup.contacts:
            way = self._responder.locate(lookup.number, lookup.key, lookup.avoid, lookup.itself)
            self._learn(lookup, way)
        self._advance(lookup)

    def _learn(self, lookup: Lookup, answer: Near | Nearer) -> None:
        if isinstance(answer, Near):
            lookup.found_before(answer.position, answer.successors, self._protocol.me)
        else:
            lookup.learn(answer.positions)

    def _advance(self, lookup: Lookup) -> None:
        lookup.steps += 1
        if lookup.before is not None:
            if lookup.on_found is not None:
                self._end(lookup)
                lookup.on_found(lookup.before, tuple(lookup.owners))
                return
            owner = lookup.owner()
            if owner is not None:
                self._confirm(lookup, owner, lookup.before.id)
                return
            lookup.before = None  # all successors of this member are dead
        if lookup.contacts_left:
            self._seek(lookup, lookup.contacts_left.pop(0), None)
        elif lookup.steps <= STEPS_MAX and (position := lookup.next()) is not None:
            self._seek(lookup, position.node, position)
        else:
            self._start_again(lookup)

    def _seek(self, lookup: Lookup, node: NodeId, position: Position | None) -> None:
        number = self._calls.next_number()
        message = Locate(lookup.key, number, tuple(lookup.avoid), lookup.itself)
        self._calls.call(node, number, message, Seeking(lookup, position))

    def _confirm(self, lookup: Lookup, owner: Position, via: Key) -> None:
        number = self._calls.next_number()
        message = Confirm(lookup.key, owner.id, number, tuple(lookup.avoid), via)
        self._calls.call(owner.node, number, message, Confirming(lookup, owner))

    def _start_again(self, lookup: Lookup) -> None:
        if not lookup.retry:
            self._end(lookup)
        elif lookup.unavoided:
            self._calls.retry_later(lookup.number)
        else:
            # There may be a route around the nodes that did not answer.
            lookup.start_again(forgive=False)
            self._set_out(lookup)

    def retry(self, number: int) -> None:
        lookup = self.in_flight.get(number)
        if lookup is None:
            return
        before = lookup.before
        lookup.start_again(forgive=True)
        if before is None or before.node == self._protocol.me:
            self._set_out(lookup)
        else:
            lookup.learn((before,))
            self._advance(lookup)

    def _end(self, lookup: Lookup) -> None:
        del self.in_flight[lookup.number]

    # -- results of calls --

    def sought(self, seeking: Seeking, answer: Near | Nearer) -> None:
        lookup = seeking.lookup
        lookup.answered(seeking.position)
        self._learn(lookup, answer)
        self._advance(lookup)

    def confirmed(self, confirming: Confirming, answer: Found | Nearer | Unsure) -> None:
        lookup, owner = confirming
        match answer:
            case Found():
                self._end(lookup)
                way = (lookup.hops, lookup.timeouts, lookup.doubts)
                found = RootFound(lookup.key, owner.node, *way, answer.certain)
                self._protocol.emit(found)
            case Unsure():
                # The next attempt asks the member right before the owner. By then that member may
                # have notified the owner, unless it still waits for a dead node.
                lookup.itself = True
                pause = min(HASTE * 2**lookup.doubted, 2.0)
                lookup.doubted = min(lookup.doubted + 1, DOUBLINGS)
                self._calls.retry_later(lookup.number, pause)
            case Nearer(_, positions):
                if positions:
                    lookup.put_owner_first(positions[0])
                if positions and lookup.steps <= STEPS_MAX:
                    self._advance(lookup)
                else:
                    lookup.before = None
                    self._start_again(lookup)

    def unanswered(self, purpose: Seeking | Confirming, peer: NodeId) -> None:
        purpose.lookup.silent(peer)
        self._advance(purpose.lookup)
