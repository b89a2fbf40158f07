"""Which node leads, as far as a client can tell.

A client keeps one link, to the leader. A node that does not lead says who does, and says it again
when that changes: so a client without a leader waits where it is, and goes on after a while only.
Of a node whose link broke twice in a row others may still say that it leads; they will know better.

A leader that is silent is not left: it may be busy. Others are asked whom they follow by now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecast.kernel.protocol import NodeId, Value
from oncecast.session.frames import Elsewhere, GroupView, LookGroup

if TYPE_CHECKING:
    from oncecast.session.client import ClientSession

NODES_MAX = 64  # that it remembers
REDIAL = 0.1
WAIT_HERE = 0.6  # for news, then the next one is asked
SILENCE = 0.25  # of a leader that owes an answer; then others are asked
ASK_EVERY = 0.1


class Redial(Value):
    pass


class AskAround(Value):
    pass


Timer = Redial | AskAround


class Whereabouts:
    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self.astray = False  # nobody has answered since it left the last one
        self.led = True  # nobody has said that there is no leader
        self._lost = NodeId("")  # whose link broke
        self._tried = False  # to reach that one again
        self._strays = 0  # times that it was sent on, or left
        self._waiting = self._asking = False

    def found(self) -> None:
        """It leads: it has answered."""
        self.astray, self.led, self._lost, self._strays = False, True, NodeId(""), 0

    def gone(self, peer: NodeId) -> None:
        """Its link is gone."""
        self._tried = self._lost == peer
        self._lost = peer
        self._move_to(self._next_node())

    def told(self, sender: NodeId, told: Elsewhere) -> None:
        session, leader = self._session, NodeId(told.leader)
        if sender != session.node and not self.astray:
            return  # an old one speaks of older ones
        known = (*told.nodes, *session.nodes)
        session.nodes = tuple(dict.fromkeys(map(NodeId, known)))[:NODES_MAX]
        self.led = bool(leader)
        if leader == session.node:
            self._resend_in(0.0)
        elif leader and not (leader == self._lost and self._tried):
            self._tried = self._lost == leader
            self._move_to(leader)
        elif sender == session.node:
            self._wait_here()

    def _wait_here(self) -> None:
        self.astray = self._waiting = True
        self._session.later(self._session.rng.uniform(0.5, 1.0) * WAIT_HERE, Redial())

    def _next_node(self) -> NodeId:
        nodes, node = self._session.nodes, self._session.node
        at = nodes.index(node) if node in nodes else -1
        return nodes[(at + 1) % len(nodes)]

    def _move_to(self, node: NodeId) -> None:
        """At once if somebody says so; those who are sent from one to the other take their time."""
        session = self._session
        if node != session.node:
            session.unwatch(session.node)
            session.node = node
        pause = REDIAL * min(self._strays, 4)
        self._strays += 1
        self._resend_in(session.rng.uniform(0.0, pause or REDIAL / 10))

    def _resend_in(self, seconds: float) -> None:
        self.astray, self._waiting = True, False
        self._session.later(seconds, Redial())

    def timeout(self, timer: Timer) -> None:
        if isinstance(timer, AskAround):
            self._ask_around()
            return
        if self._waiting:
            self._waiting = self._tried = False  # it may have been back for long
            session = self._session
            session.unwatch(session.node)
            session.node = self._next_node()
        self._session.redial()

    # -- silence --

    def look(self) -> None:
        """Is an answer owed, and nothing heard? A while later others are asked, again and again."""
        if not self._asking and self._silent:
            self._asking = True
            self._session.later(SILENCE, AskAround())

    @property
    def _silent(self) -> bool:
        session = self._session
        silent = session.now - session.heard >= SILENCE
        return silent and session.waits and not self.astray

    def _ask_around(self) -> None:
        session = self._session
        self._asking = self._silent
        if self._asking:
            for node in session.nodes:
                if node != session.node:
                    session.send(node, LookGroup(0), after=0)
            session.later(ASK_EVERY, AskAround())

    def seen(self, view: GroupView) -> None:
        """One of the others answers."""
        leader, here = NodeId(view.leader), self._session.node
        if self._asking and view.node != here and leader not in ("", here):
            self._move_to(leader)
