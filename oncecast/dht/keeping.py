"""Keeping the ring: the part of Chord that changes who comes after us and who before.

The rules are Zave's (see `member`). Each reads one other member at a time, and one is carried out
at a time: who is asked meanwhile answers, and who notifies us meanwhile has its turn after it.
"""

from __future__ import annotations

from random import Random

from oncecast.dht.events import Hurry, Notify, Probe, RangeChanged, Report
from oncecast.dht.finding import HASTE, Finder
from oncecast.dht.identifiers import Key, Place, between
from oncecast.dht.member import Member
from oncecast.kernel.protocol import NodeId, Value

PATIENCE = 4  # times to stabilize, in which a predecessor would have told us of itself


class Stabilize(Value):
    """Timer: a position looks after its successors, and renews a finger."""

    at: Key


class Stabilizing:
    """Call: `asked` is the head of the list, or lies before `head`, the one that is."""

    def __init__(self, member: Member, asked: Place, head: Place | None = None) -> None:
        self.member, self.asked, self.head = member, asked, head


class Rectifying:
    """Call: is our predecessor alive? If not, `new` is our predecessor."""

    def __init__(self, member: Member, new: Place | None) -> None:
        self.member, self.new = member, new


class Keeper(Finder):
    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        stabilize_every: float,
        answer_within: float,
        links: bool,
        lookups_max: int,
    ) -> None:
        super().__init__(me, rng, answer_within=answer_within, lookups_max=lookups_max)
        self.stabilize_every, self.links = stabilize_every, links
        self.ranges: dict[Key, Key | None] = {}  # the last RangeChanged of each position

    # -- stabilize: look after our successors, and tell the first of us --

    def _stabilize_later(self, member: Member) -> None:
        # Uniform around the mean, as in the paper, lest all do it at once.
        delay = self.stabilize_every * self.rng.uniform(0.5, 1.5)
        self.later(delay, Stabilize(member.place.id))

    def stabilize(self, member: Member) -> None:
        if member.joined and not member.busy:
            member.busy = True
            self._go_on(member)

    def _go_on(self, member: Member) -> None:
        """Ask the head of the list; a member alone asks whoever has found it."""
        if member.successors:
            head = member.successors[0]
            self._probe(head, Stabilizing(member, head))
        else:
            self._approach(member, member.predecessor, None)

    def _probe(self, place: Place, what: Stabilizing | Rectifying) -> None:
        number = self.next_number()
        self.call(place.node, number, Probe(place.id, number), what)

    def _report(self, sender: NodeId, probe: Probe) -> None:
        member = self.members.get(probe.at)
        if member is not None and member.joined:
            self.send(sender, Report(probe.number, member.predecessor, member.successors))

    def _stabilized(self, stabilizing: Stabilizing, report: Report) -> None:
        member, asked = stabilizing.member, stabilizing.asked
        member.follow(asked, report.successors)
        member.recognized = report.predecessor == member.place
        if stabilizing.head is None:
            if member.recognized and not member.settled:
                self._settle(member)
            self._approach(member, report.predecessor, asked)
        else:
            self._notify(member, asked)

    def _settle(self, member: Member) -> None:
        """Our successor knows of us; if it dies now, the one before us is all that does."""
        member.settled = True
        if member.predecessor is not None:
            self.send(member.predecessor.node, Hurry(member.predecessor.id))

    def _approach(self, member: Member, hearsay: Place | None, head: Place | None) -> None:
        """Somebody may lie between us and our head: ask it, and follow it only if it answers."""
        nearest, member.candidate = member.candidate, None
        if nearest is None or (
            hearsay is not None and between(member.place.id, hearsay.id, nearest.id)
        ):
            nearest = hearsay
        if nearest is not None and member.nearer(nearest):
            self._probe(nearest, Stabilizing(member, nearest, head or member.place))
        elif head is not None:
            self._notify(member, head)
        else:
            self._finish(member)

    def _not_stabilized(self, stabilizing: Stabilizing) -> None:
        member, asked, head = stabilizing.member, stabilizing.asked, stabilizing.head
        if head is None:
            self._drop(member, asked.node)
            self._go_on(member)
        elif head == member.place:
            self._finish(member)
        else:
            self._notify(member, head)

    def _drop(self, member: Member, node: NodeId) -> bool:
        """A node is dead. Whether it was the head of the list."""
        was_head = member.drop(node)
        if was_head:
            member.recognized = not member.successors  # alone, it needs nobody's word
            member.settled = member.settled or member.recognized
        return was_head

    def _notify(self, member: Member, head: Place) -> None:
        self.send(head.node, Notify(head.id, member.place))
        if not member.settled:
            self.later(self.answer_within * HASTE, Stabilize(member.place.id))
        self._finish(member)

    def _finish(self, member: Member) -> None:
        """An operation is over; who notified us meanwhile has its turn."""
        member.busy = False
        self._tell_range(member)
        new, member.notified = member.notified, None
        if new is not None:
            self._rectify(member, new)
        self._keep_links()

    # -- rectify: somebody may be the one before us --

    def _rectify(self, member: Member, new: Place) -> None:
        if not member.joined or new.id == member.place.id:
            return
        if new == member.predecessor:
            self._hear_predecessor(member)
        elif member.busy:
            if member.notified is None or between(member.notified.id, new.id, member.place.id):
                member.notified = new
        elif member.precedes_better(new):
            if member.predecessor is not None:
                # It owns our keys after that one, and must not take itself for the owner of more.
                self.send(new.node, Notify(new.id, member.predecessor))
            self._set_predecessor(member, new)
            if not member.successors:
                self.stabilize(member)
            self._keep_links()
        else:
            self._doubt(member, new)

    def doubt_predecessor(self, member: Member) -> None:
        if not member.busy and member.predecessor is not None:
            self._doubt(member, None)

    def _doubt(self, member: Member, new: Place | None) -> None:
        assert member.predecessor is not None
        member.busy = True
        self._probe(member.predecessor, Rectifying(member, new))

    def _set_predecessor(self, member: Member, new: Place | None) -> None:
        if new != member.predecessor:
            member.predecessor = new
            self._hear_predecessor(member)

    def _hear_predecessor(self, member: Member) -> None:
        member.heard, member.unheard = self.now, False
        self._tell_range(member)

    def miss_predecessor(self, member: Member) -> None:
        member.unheard = self.now - member.heard > PATIENCE * self.stabilize_every
        self._tell_range(member)

    def _tell_range(self, member: Member) -> None:
        """Tell the layer above what the position owns, if that has changed."""
        at, low = member.place.id, member.low
        if self.ranges.get(at, Key(b"")) != low:
            self.ranges[at] = low
            self.emit(RangeChanged(at, low))

    # -- links --

    def _keep_links(self) -> None:
        """To all that our tables name, and no other."""
        if not self.links:
            return
        wanted: dict[NodeId, None] = {}
        for member in self.members.values():
            wanted.update((place.node, None) for place in member.known())
            if member.predecessor is not None:
                wanted[member.predecessor.node] = None
        wanted.pop(self.me, None)
        for node in [node for node in self.watched if node not in wanted]:
            self.unwatch(node)
        for node in wanted:
            self.watch(node)
