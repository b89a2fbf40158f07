"""Chord: a ring in which each key has an owner that is found in a logarithmic number of hops.

Stoica et al., "Chord: A Scalable Peer-to-peer Lookup Protocol for Internet Applications", ToN 2003,
with the rules that Zave has corrected (see `member`). An id is the SHA-256 of a name. A key belongs
to the first position at or after it.

Needs a contact to join through, and links unless they are turned off. Serves FindRoot and Route.
Emits RootFound, Routed and RangeChanged.

The ring stays intact if no member loses all its successors at once, and if the ring has more
members than a successor list. Smaller rings work, but a member that all others have lost must be
found again. A member that loses all its successors finds the ring again through its fingers. A
member that is fully isolated forms its own ring. Nodes keep looking for those that they lost, so
separate rings merge again.

Chord passes each input to one of its parts. The parts share `Members`, the positions of this node.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from random import Random
from typing import ClassVar, assert_never

from oncecast.dht.calls import Calls, Counters
from oncecast.dht.events import FindRoot, Route
from oncecast.dht.identifiers import Position, between, finger_start, position_ids
from oncecast.dht.joining import Joining, Reunion
from oncecast.dht.lookups import Confirming, Lookups, Seeking
from oncecast.dht.member import Member, Members
from oncecast.dht.messages import (
    Again,
    Call,
    ChordMessage,
    Confirm,
    Found,
    Hop,
    Hopped,
    Hurry,
    Locate,
    Near,
    Nearer,
    Notify,
    Probe,
    Report,
    Silent,
    Stabilize,
    Unsure,
    possible,
)
from oncecast.dht.ranges import Links, Ranges
from oncecast.dht.responder import Responder
from oncecast.dht.routing import Hopping, Routing
from oncecast.dht.stabilization import Rectifying, Stabilization, Stabilizing
from oncecast.dht.status import Status
from oncecast.kernel.protocol import NodeId, Protocol

PATIENCE = 4  # number of stabilize periods within which a live predecessor notifies this member


class Chord(Protocol):
    name = "chord"
    Request: ClassVar = FindRoot | Route
    Message = ChordMessage
    Timer: ClassVar = Stabilize | Silent | Again

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        contacts: Iterable[NodeId] = (),
        lost: Iterable[NodeId] = (),
        members: Iterable[Member] = (),
        ring_name: str = "",
        positions_count: int = 1,
        successors_max: int = 8,
        stabilize_every: float = 1.0,
        answer_within: float = 0.5,
        links: bool = True,
        lookups_max: int = 10_000,
    ) -> None:
        super().__init__(me, rng)
        ids = position_ids(ring_name or me, positions_count)
        new = (Member(Position(id, me), successors_max) for id in ids)
        self.members = Members(tuple(members) or new)
        counters = self._counters = Counters()
        self.calls = Calls(self, counters, answer_within)
        self._links = Links(self, self.members, links)
        ranges = self._ranges = Ranges(self, PATIENCE * stabilize_every)
        self.stabilization = Stabilization(
            self, self.members, self.calls, ranges, self._links, stabilize_every
        )
        self._responder = Responder(self, self.members, self.stabilization, ranges, counters)
        self._lookups = Lookups(
            self, self.members, self.calls, self._responder, counters, lookups_max
        )
        self._routing = Routing(self, self.members, self.calls, ranges, counters, lookups_max)
        known = tuple(contact for contact in contacts if contact != me)
        self.joining = Joining(self, known, self._lookups, self.stabilization, ranges, self._links)
        self._reunion = Reunion(self, self._lookups, (node for node in lost if node != me))

    @property
    def status(self) -> Status:
        return Status(
            members=self.members,
            calls=self.calls.waiting,
            lookups=len(self._lookups.in_flight),
            payloads=len(self._routing.in_flight),
            contacts=self.joining.contacts,
            lost=tuple(self._reunion.lost),
            dropped=self._counters.dropped,
            refused=self._counters.refused,
        )

    def start(self) -> None:
        for index, member in enumerate(self.members):
            if member.joined:  # placed on the ring when created; the other nodes may start later
                self.stabilization.schedule(member)
                self._ranges.announce(member)
            elif not self.joining.contacts and index == 0:
                self.joining.start_ring(member)
            else:
                self.joining.join(member)

    def request(self, request: FindRoot | Route) -> None:
        match request:
            case FindRoot():
                self._lookups.find_root(request)
            case Route():
                self._routing.route(request)
            case _:
                assert_never(request)

    def receive(self, sender: NodeId, message: ChordMessage) -> None:
        if not possible(message):
            self._counters.dropped += 1
            return
        match message:
            case Probe():
                self.stabilization.answer_probe(sender, message)
            case Notify(at, position):
                member = self.members.at(at)
                if member is not None:
                    self.stabilization.rectify(member, position)
            case Hurry(at):
                member = self.members.at(at)
                if member is not None:
                    self.stabilization.stabilize(member)
            case Locate():
                self._responder.answer_locate(sender, message)
            case Confirm():
                self._responder.answer_confirm(sender, message)
            case Hop():
                self._routing.hop(sender, message)
            case Hopped(number):
                self._routing.hopped(number)
            case Report() | Near() | Nearer() | Found() | Unsure():
                self._receive_answer(sender, message)
            case _:
                assert_never(message)

    def timeout(self, timer: Stabilize | Silent | Again) -> None:
        match timer:
            case Stabilize(at):
                member = self.members.at(at)
                assert member is not None, "the timer belongs to another node"
                if member.joined:
                    self._take_turn(member)
                else:
                    self.joining.join(member)
            case Silent(number):
                self._give_up(self.calls.waiting.pop(number))
            case Again(number):
                self._routing.retry(number)
                self._lookups.retry(number)
            case _:
                assert_never(timer)

    def down(self, peer: NodeId) -> None:
        self._reunion.lose(peer)
        self.stabilization.lose(peer)
        for call in self.calls.take_lost(peer):
            self._give_up(call)
        self._links.update()

    # -- calls --

    def _receive_answer(
        self, sender: NodeId, answer: Report | Near | Nearer | Found | Unsure
    ) -> None:
        match self.calls.take_answer(sender, answer), answer:
            case (Stabilizing() | Rectifying()) as purpose, Report():
                self.stabilization.answered(purpose, answer)
            case Seeking() as seeking, Near() | Nearer():
                self._lookups.sought(seeking, answer)
            case Confirming() as confirming, Found() | Nearer() | Unsure():
                self._lookups.confirmed(confirming, answer)
            case None, _:
                pass
            case purpose, _:  # the answer does not match the question
                self._counters.dropped += 1
                self._give_up(Call(sender, purpose))

    def _give_up(self, call: Call) -> None:
        match call.purpose:
            case Stabilizing() | Rectifying() as purpose:
                self.stabilization.unanswered(purpose)
            case Seeking() | Confirming() as purpose:
                self._lookups.unanswered(purpose, call.peer)
            case Hopping() as hopping:
                self._routing.unanswered(hopping, call.peer)
            case purpose:
                raise AssertionError(f"unknown purpose of a call: {purpose}")

    # -- one round of stabilization --

    def _take_turn(self, member: Member) -> None:
        self.stabilization.schedule(member)
        self._ranges.check_predecessor(member)
        self.stabilization.stabilize(member)
        self._fix_finger(member)
        self._reunion.look(member)

    def _fix_finger(self, member: Member) -> None:
        index = member.finger_to_fix()
        if index is not None:
            start = finger_start(member.position.id, index)
            self._lookups.look_up(start, partial(self._fixed_finger, member, index), retry=False)

    def _fixed_finger(
        self, member: Member, index: int, before: Position, successors: tuple[Position, ...]
    ) -> None:
        old, new = member.fingers.get(index), successors[0]
        if old is not None and between(member.position.id, old.id, new.id):
            self._reunion.miss(old.node)
        member.set_finger(index, new)
        self._links.update()
