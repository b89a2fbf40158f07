"""Chord: a ring on which every key has one owner, found in a logarithmic number of hops.

Stoica et al., "Chord: A Scalable Peer-to-peer Lookup Protocol for Internet Applications", ToN 2003,
with the rules made correct by Zave (see `member`). An id is the SHA-256 of a name; a key belongs to
the first position at or after it.

Needs a contact to join by, and links if it may have them. Serves FindRoot and Route. Gives
RootFound, Routed and RangeChanged.

The ring holds while no member loses all its successors at once, and has more members than a list is
long; smaller rings work, but a member that all others lose sight of has to be found again. A member
that is cut off makes a ring of its own; those that saw each other go look for each other, so rings
grow together again.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import assert_never

from oncecast.dht.calls import Call, Silent
from oncecast.dht.events import (
    ChordMessage,
    Confirm,
    FindRoot,
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
    Route,
    Unsure,
    possible,
)
from oncecast.dht.finding import Again, Confirming, Hopping, Seeking
from oncecast.dht.identifiers import Place, finger_start, positions
from oncecast.dht.keeping import Keeper, Rectifying, Stabilize, Stabilizing
from oncecast.dht.lookup import Fixing, Joining, Lookup, Reuniting, Root
from oncecast.dht.member import Member
from oncecast.kernel.protocol import NodeId

GONE_CHANCE = 0.1  # of a turn of stabilizing to look for one of them
GONE_MAX = 16  # nodes remembered that were lost sight of


class Chord(Keeper):
    name = "chord"
    Request = FindRoot | Route
    Message = ChordMessage
    Timer = Stabilize | Silent | Again

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        contacts: Iterable[NodeId] = (),
        ring_name: str = "",
        positions_count: int = 1,
        successors_max: int = 8,
        stabilize_every: float = 1.0,
        answer_within: float = 0.5,
        links: bool = True,
        lookups_max: int = 10_000,
    ) -> None:
        super().__init__(
            me,
            rng,
            stabilize_every=stabilize_every,
            answer_within=answer_within,
            links=links,
            lookups_max=lookups_max,
        )
        self.contacts = [contact for contact in contacts if contact != me]
        for id in positions(ring_name or me, positions_count):
            self.members[id] = Member(Place(id, me), successors_max)
        self.gone: dict[NodeId, None] = {}  # lost sight of, and not heard of since

    # -- inputs --

    def start(self) -> None:
        for index, member in enumerate(self.members.values()):
            if member.joined:  # built in a steady ring, whose other nodes may start after this one
                self._stabilize_later(member)
                self._tell_range(member)
            elif not self.contacts and index == 0:
                member.joined = member.settled = member.recognized = True
                self._tell_range(member)
                self._be_member(member)
            else:
                self._join(member)

    def request(self, request: FindRoot | Route) -> None:
        match request:
            case FindRoot():
                self.find_root(request)
            case Route():
                self.route(request)
            case _:
                assert_never(request)

    def receive(self, sender: NodeId, message: ChordMessage) -> None:
        if not possible(message):
            self.dropped += 1
            return
        match message:
            case Probe():
                self._report(sender, message)
            case Notify(at, place):
                member = self.members.get(at)
                if member is not None:
                    self._rectify(member, place)
            case Hurry(at):
                member = self.members.get(at)
                if member is not None:
                    self.stabilize(member)
            case Locate():
                self.locate(sender, message)
            case Confirm():
                self.confirm(sender, message)
            case Hop():
                self.hop(sender, message)
            case Hopped(number):
                self.hopped(number)
            case Report() | Near() | Nearer() | Found() | Unsure():
                self._receive_answer(sender, message)
            case _:
                assert_never(message)

    def timeout(self, timer: Stabilize | Silent | Again) -> None:
        match timer:
            case Stabilize(at):
                member = self.members[at]
                if member.joined:
                    self._stabilize_later(member)
                    self.miss_predecessor(member)
                    self.stabilize(member)
                    self._fix_finger(member)
                    self._look_for_the_gone(member)
                else:
                    self._join(member)
            case Silent(number):
                self._give_up(self.take_silence(number))
            case Again(number):
                self.again(number)
            case _:
                assert_never(timer)

    def down(self, peer: NodeId) -> None:
        self.gone[peer] = None
        if len(self.gone) > GONE_MAX:
            del self.gone[next(iter(self.gone))]
        for member in self.members.values():
            lost_head = self._drop(member, peer)
            if member.predecessor is not None and member.predecessor.node == peer:
                self._set_predecessor(member, None)
            if lost_head:
                self.stabilize(member)
        for call in self.fail_calls_to(peer):
            self._give_up(call)
        self._keep_links()

    # -- answers --

    def _receive_answer(
        self, sender: NodeId, answer: Report | Near | Nearer | Found | Unsure
    ) -> None:
        match self.take_answer(sender, answer), answer:
            case Stabilizing() as stabilizing, Report():
                self._stabilized(stabilizing, answer)
            case Rectifying() as rectifying, Report():
                self._finish(rectifying.member)
            case Seeking() as seeking, Near() | Nearer():
                self.sought(seeking, answer)
            case Confirming() as confirming, Found() | Nearer() | Unsure():
                self.confirmed(confirming, answer)
            case None, _:
                pass
            case what, _:  # another answer than the one it was asked for
                self.dropped += 1
                self._give_up(Call(sender, what))

    def _give_up(self, call: Call) -> None:
        match call.what:
            case Stabilizing() as stabilizing:
                self._not_stabilized(stabilizing)
            case Rectifying(member=member, new=new):
                self._set_predecessor(member, new)
                self._finish(member)
            case Seeking() | Confirming() | Hopping() as what:
                self.not_answered(what, call.peer)
            case what:
                raise AssertionError(f"a call for {what}")

    # -- join: find the one before us, copy its list, and be a member --

    def _join(self, member: Member) -> None:
        self.look_up(member.place.id, Joining(member), *self.contacts)

    def found_before(self, lookup: Lookup, before: Place, successors: tuple[Place, ...]) -> None:
        match lookup.purpose:
            case Joining(member=member):
                self.joined(member, before, successors)
            case Fixing(member=member, index=index):
                member.set_finger(index, successors[0])
                self._keep_links()
            case Reuniting(member=member):
                self._reunite(member, successors[0], lookup.purpose.node)
            case Root():
                raise AssertionError("a root is confirmed by itself")
            case _:
                assert_never(lookup.purpose)

    def joined(self, member: Member, before: Place, successors: tuple[Place, ...]) -> None:
        head = successors[0]
        if head.id == member.place.id and head.node != self.me:
            # Another node holds our position; when it is gone, we may have it.
            self.later(self.stabilize_every, Stabilize(member.place.id))
            return
        member.join(before, successors)
        self._tell_range(member)
        self._be_member(member)

    def _be_member(self, member: Member) -> None:
        self._stabilize_later(member)
        self.stabilize(member)
        self._keep_links()

    # -- fingers, and rings that were parted --

    def _fix_finger(self, member: Member) -> None:
        index = member.finger_to_fix()
        if index is not None:
            self.look_up(finger_start(member.place.id, index), Fixing(member, index))

    def _look_for_the_gone(self, member: Member) -> None:
        """Now and then, the longest gone first; who does not answer goes to the end."""
        if self.gone and self.rng.random() < GONE_CHANCE:
            node = next(iter(self.gone))
            del self.gone[node]
            self.gone[node] = None
            self.look_up(member.place.id, Reuniting(member, node), node)

    def _reunite(self, member: Member, after: Place, gone: NodeId) -> None:
        """A node that was gone is back; on its ring `after` comes after us."""
        if member.successors and member.successors[0] == after:
            self.gone.pop(gone, None)  # that is our ring
        elif member.nearer(after):
            member.candidate = after
        elif after.id != member.place.id:
            self.send(after.node, Notify(after.id, member.place))
