"""Stabilize and rectify: the rules that change a position's neighbours.

The rules are Zave's (see `member`). Each rule reads one other member at a time, and a position runs
one rule at a time. While a rule runs, the position answers probes and defers a Notify to the end.
"""

from __future__ import annotations

from typing import NamedTuple

from oncecast.dht.calls import Calls
from oncecast.dht.identifiers import Position, between
from oncecast.dht.member import Member, Members
from oncecast.dht.messages import Hurry, Notify, Probe, Report, Stabilize
from oncecast.dht.ranges import Links, Ranges
from oncecast.kernel.protocol import NodeId, Protocol

HASTE = 0.2  # a typical round trip, as a fraction of the timeout


class Stabilizing(NamedTuple):
    """Call: probe `asked`, the first successor or, if `head` is set, a candidate before `head`."""

    member: Member
    asked: Position
    head: Position | None = None


class Rectifying(NamedTuple):
    """Call: probe the predecessor. If it is dead, `new` replaces it."""

    member: Member
    new: Position | None


class Stabilization:
    def __init__(
        self,
        protocol: Protocol,
        members: Members,
        calls: Calls,
        ranges: Ranges,
        links: Links,
        every: float,
    ) -> None:
        self._protocol, self._members, self._calls = protocol, members, calls
        self._ranges, self._links = ranges, links
        self.every = every

    # -- stabilize: check our successors and notify the first one --

    def schedule(self, member: Member) -> None:
        # The delay is uniform around the mean, as in the paper, so members do not act in lockstep.
        delay = self.every * self._protocol.rng.uniform(0.5, 1.5)
        self._protocol.later(delay, Stabilize(member.position.id))

    def stabilize(self, member: Member) -> None:
        if member.joined and not member.busy:
            member.busy = True
            self._ask_head(member)

    def _ask_head(self, member: Member) -> None:
        """Probe the first successor.

        An isolated member probes its fingers, the nearest first. From there it follows the
        predecessors back. A lone member probes a node that has notified it.
        """
        if member.successors:
            head = member.successors[0]
            self._probe(head, Stabilizing(member, head))
        else:
            self._approach(member, member.nearest() or member.predecessor, None)

    def _probe(self, position: Position, purpose: Stabilizing | Rectifying) -> None:
        number = self._calls.next_number()
        self._calls.call(position.node, number, Probe(position.id, number), purpose)

    def answer_probe(self, sender: NodeId, probe: Probe) -> None:
        member = self._members.at(probe.at)
        if member is not None and member.joined:
            report = Report(probe.number, member.predecessor, member.successors)
            self._protocol.send(sender, report)

    def _stabilized(self, stabilizing: Stabilizing, report: Report) -> None:
        member, asked, head = stabilizing
        member.follow(asked, report.successors)
        member.recognized = report.predecessor == member.position
        if head is None and member.recognized and not member.settled:
            self._settle(member)
        self._approach(member, report.predecessor, asked)

    def _settle(self, member: Member) -> None:
        """Make our predecessor stabilize now, in case our successor dies before then."""
        member.settled = True
        if member.predecessor is not None:
            self._protocol.send(member.predecessor.node, Hurry(member.predecessor.id))

    def _approach(self, member: Member, hearsay: Position | None, head: Position | None) -> None:
        """Probe a position that may lie before our first successor; follow it if it answers."""
        nearest, member.candidate = member.candidate, None
        if nearest is None or (
            hearsay is not None and between(member.position.id, hearsay.id, nearest.id)
        ):
            nearest = hearsay
        if nearest is not None and member.nearer(nearest):
            self._probe(nearest, Stabilizing(member, nearest, head or member.position))
        elif head is not None:
            self._notify(member, head)
        else:
            self._finish(member)

    def _not_stabilized(self, stabilizing: Stabilizing) -> None:
        member, asked, head = stabilizing
        if head is None or member.cut_off:
            member.drop(asked.node)
            self._ask_head(member)
        elif head == member.position:
            self._finish(member)
        else:
            self._notify(member, head)

    def _notify(self, member: Member, head: Position) -> None:
        self._protocol.send(head.node, Notify(head.id, member.position))
        if not member.settled:
            soon = self._calls.answer_within * HASTE
            self._protocol.later(soon, Stabilize(member.position.id))
        self._finish(member)

    def _finish(self, member: Member) -> None:
        """End an operation, then handle a Notify that arrived during it."""
        member.busy = False
        self._ranges.announce(member)
        new, member.notified = member.notified, None
        if new is not None:
            self.rectify(member, new)
        self._links.update()

    # -- rectify: decide whether another member is our predecessor --

    def rectify(self, member: Member, new: Position) -> None:
        if not member.joined or new.id == member.position.id:
            return
        if new == member.predecessor:
            self._ranges.hear_predecessor(member)
        elif member.busy:
            if member.notified is None or between(member.notified.id, new.id, member.position.id):
                member.notified = new
        elif member.precedes_better(new):
            if member.predecessor is not None:
                # The new predecessor takes over only our keys after the old predecessor.
                self._protocol.send(new.node, Notify(new.id, member.predecessor))
            self._ranges.set_predecessor(member, new)
            if not member.successors:
                self.stabilize(member)
            self._links.update()
        else:
            self._probe_predecessor(member, new)

    def doubt_predecessor(self, member: Member) -> None:
        """Probe the predecessor, because another node got no answer from it."""
        if not member.busy and member.predecessor is not None:
            self._probe_predecessor(member, None)

    def _probe_predecessor(self, member: Member, new: Position | None) -> None:
        assert member.predecessor is not None
        member.busy = True
        self._probe(member.predecessor, Rectifying(member, new))

    # -- results of calls, and lost links --

    def answered(self, purpose: Stabilizing | Rectifying, report: Report) -> None:
        if isinstance(purpose, Stabilizing):
            self._stabilized(purpose, report)
        else:
            self._finish(purpose.member)

    def unanswered(self, purpose: Stabilizing | Rectifying) -> None:
        if isinstance(purpose, Stabilizing):
            self._not_stabilized(purpose)
        else:
            self._ranges.set_predecessor(purpose.member, purpose.new)
            self._finish(purpose.member)

    def lose(self, node: NodeId) -> None:
        """Remove a dead node from all tables."""
        for member in self._members:
            lost_head = member.drop(node)
            if member.predecessor is not None and member.predecessor.node == node:
                self._ranges.set_predecessor(member, None)
            if lost_head:
                self.stabilize(member)
