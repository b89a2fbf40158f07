"""Which node of a group leads, as far as a client can tell.

A client keeps one link to each group, to its leader. A node that does not lead says who does, and
says it again when that changes: so a client without a leader waits where it is, and goes on after a
while only. Of a node whose link broke twice in a row others may still say that it leads; they will
know better.

A leader that is silent is not left: it may be busy. Others are asked whom they follow by now. But
the processes of a ring are all alike: of those a silent one is left for the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oncecast.kernel.protocol import NodeId, Value
from oncecast.wire.frames import Elsewhere, GroupView, LookGroup

if TYPE_CHECKING:
    from oncecast.client.session.client import ClientSession

NODES_MAX = 64  # that it remembers
REDIAL = 0.1
WAIT_HERE = 0.6  # for news, then the next one is asked
SILENCE = 0.25  # of a leader that owes an answer; then others are asked
ASK_EVERY = 0.1
RING_SILENCE = 2.0  # of a process, which may have to ask others first
ROUNDS = 2  # through all nodes of a group; if none can be reached, home is asked where it is


class Redial(Value):
    group: str


class AskAround(Value):
    group: str


Timer = Redial | AskAround


class Whereabouts:
    def __init__(self, session: ClientSession, group: str, nodes: tuple[NodeId, ...]) -> None:
        self._session = session
        self.group = group  # "": home, the nodes that the application has named
        self.nodes, self.node = nodes, nodes[0]
        self.heard = session.now  # when the node has said something
        self.astray = False  # nobody has answered since it left the last one
        self.led = True  # nobody has said that there is no leader
        self.of_ring = False  # its nodes are processes of a ring
        self._lost = NodeId("")  # whose link broke
        self._tried = False  # to reach that one again
        self._strays = 0  # times that it was sent on, or left
        self._failures = 0  # links that broke, in a row
        self._left: dict[NodeId, int] = {}  # when each was left last, by a count of that
        self._leavings = 0
        self._waiting = self._asking = False

    def found(self) -> None:
        """It leads: it has answered."""
        self.astray, self.led, self._lost, self._strays = False, True, NodeId(""), 0
        self._failures = 0

    def gone(self, peer: NodeId) -> None:
        """Its link is gone."""
        self._failures += 1
        if self.group and self._failures > ROUNDS * len(self.nodes):
            self._session.ways.give_up(self)
            return
        self._tried = self._lost == peer
        self._lost = peer
        self._move_to(self._next_node())

    def told(self, sender: NodeId, told: Elsewhere) -> None:
        leader = NodeId(told.leader)
        if sender != self.node and not self.astray:
            return  # an old one speaks of older ones
        self.learn(told.nodes)
        self.led = bool(leader)
        if leader == self.node:
            self._resend_in(0.0)
        elif leader and not (leader == self._lost and self._tried):
            self._tried = self._lost == leader
            self._move_to(leader)
        elif sender == self.node:
            self._wait_here()

    def learn(self, nodes: Iterable[str]) -> None:
        """Of a group that it was shown to it knows what was said last; of home, all."""
        known = tuple(dict.fromkeys(map(NodeId, nodes)))
        if not self.group:
            known = tuple(dict.fromkeys((*known, *self.nodes)))
        self.nodes = known[:NODES_MAX] or self.nodes

    def hint(self, leader: str, nodes: Iterable[str]) -> None:
        """Home says where the group is: that counts until one of the group is found."""
        if self.astray:
            self.learn(nodes)
            if leader and leader not in (self.node, self._lost):
                self._move_to(NodeId(leader))

    def _wait_here(self) -> None:
        if not self._waiting:  # each call is answered so, and must not begin the wait anew
            self.astray = self._waiting = True
            self._session.later(self._session.rng.uniform(0.5, 1.0) * WAIT_HERE, Redial(self.group))

    def _next_node(self) -> NodeId:
        """The one that was left longest ago: whom others name, and in which order, changes."""
        others = [node for node in self.nodes if node != self.node] or list(self.nodes)
        return min(others, key=lambda node: self._left.get(node, 0))

    def _move_to(self, node: NodeId) -> None:
        """At once if somebody says so; those who are sent from one to the other take their time."""
        self._go(node)
        pause = REDIAL * min(self._strays, 4)
        self._strays += 1
        self._resend_in(self._session.rng.uniform(0.0, pause or REDIAL / 10))

    def _go(self, node: NodeId) -> None:
        left, self.node = self.node, node
        if node != left:
            self._leavings += 1
            self._left = {each: self._left.get(each, 0) for each in self.nodes}
            self._left[left] = self._leavings
            self._session.ways.left(left)

    def _resend_in(self, seconds: float) -> None:
        self.astray, self._waiting = True, False
        self._session.later(seconds, Redial(self.group))

    def timeout(self, timer: Timer) -> None:
        if isinstance(timer, AskAround):
            self._ask_around()
            return
        if self._waiting:
            self._waiting = self._tried = False  # it may have been back for long
            self._go(self._next_node())
        self._session.redial(self)

    # -- silence --

    def look(self, *, owes: bool) -> None:
        """Is an answer owed, and nothing heard? A while later others are asked, again and again."""
        if owes and not self._asking and self._silent:
            self._asking = True
            patience = RING_SILENCE if self.of_ring else SILENCE
            self._session.later(patience, AskAround(self.group))

    @property
    def _silent(self) -> bool:
        silent = self._session.now - self.heard >= SILENCE
        return silent and (self.of_ring or not self.astray)

    def _ask_around(self) -> None:
        session = self._session
        self._asking = self._silent and self in session.owing()
        if not self._asking:
            return
        if self.of_ring:
            self._leave_silent()
            return
        for node in self.nodes:
            if node != self.node:
                session.send(node, LookGroup(0), after=0)
        session.later(ASK_EVERY, AskAround(self.group))

    def _leave_silent(self) -> None:
        self._asking = False
        if len(self.nodes) > 1:
            self.heard = self._session.now  # the next one is given its time
            self._move_to(self._next_node())

    def seen(self, view: GroupView) -> None:
        """One of the others answers."""
        leader, here = NodeId(view.leader), self.node
        if self._asking and view.node != here and leader not in ("", here):
            self._move_to(leader)
