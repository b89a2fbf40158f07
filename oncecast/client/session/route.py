"""The route to one group: the node that leads the group, as far as the client knows.

A client keeps one link per group, to its leader. A follower reports the leader, and reports each
leader change. So a client that finds no leader waits a moment before it asks the next node. If the
link to a node broke twice in a row, the client avoids that node, even if other nodes report it as
the leader.

A client does not leave a silent leader at once, because the leader may be busy. Instead, it asks
the other nodes which leader they follow. All processes of a ring are equal, so there the client
leaves a silent process for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from typing import Protocol as Interface

from oncecast.client.session.records import AskAround, Redial
from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.wire.frames import Elsewhere, GroupView, LookGroup

if TYPE_CHECKING:
    from oncecast.client.session.routes import Routes

NODES_MAX = 64  # maximum number of nodes to remember per group
REDIAL = 0.1  # seconds
WAIT_HERE = 0.6  # maximum seconds to wait at a node that knows no leader
SILENCE = 0.25  # seconds after which a leader that sends nothing counts as silent
ASK_EVERY = 0.1
RING_SILENCE = 2.0  # the same for a process of a ring, which may have to ask other processes
ROUNDS = 2  # number of rounds through all nodes before the client gives up on the group


Timer = Redial | AskAround


class Pending(Interface):
    """A client's unanswered requests."""

    def redial(self, route: Route) -> None:
        """Watch the route's node and resend all requests of the route."""

    def resend(self, about: Callable[[str], bool]) -> None:
        """Resend the requests whose topic `about` accepts."""

    def owing(self) -> set[Route]:
        """Return the routes with unanswered requests."""

    def topics_in_use(self) -> set[str]:
        """Return the topics of all requests and readers."""


class Route:
    def __init__(
        self,
        host: Protocol,
        group: str,  # "" for the nodes that the application named
        nodes: tuple[NodeId, ...],
        routes: Routes,
        pending: Pending,
    ) -> None:
        self._host, self._routes, self._pending = host, routes, pending
        self.group = group
        self.nodes, self.node = nodes, nodes[0]
        self.heard = host.now  # time of the last message from the node
        self.astray = False  # whether the client waits for the first answer from the current node
        self.led = True  # whether the node knows a leader, according to its last report
        self.of_ring = False  # whether the nodes are processes of a ring
        self._lost = NodeId("")  # the node whose link broke last
        self._tried = False  # whether the client has tried `_lost` again
        self._strays = 0  # number of moves since the last answer
        self._failures = 0  # number of consecutive broken links
        # By node: the number of moves when the client last left it.
        self._left: dict[NodeId, int] = {}
        self._leavings = 0  # total moves
        self._waiting = self._asking = False

    def found(self) -> None:
        """Record that the node answered as the leader."""
        self.astray, self.led, self._lost, self._strays = False, True, NodeId(""), 0
        self._failures = 0

    def gone(self, peer: NodeId) -> None:
        """Move on after the link to `peer` broke. Give up if no node is reachable."""
        self._failures += 1
        if self.group and self._failures > ROUNDS * len(self.nodes):
            self._routes.give_up(self)
            return
        self._tried = self._lost == peer
        self._lost = peer
        self._move_to(self._next_node())

    def elsewhere(self, sender: NodeId, elsewhere: Elsewhere) -> None:
        """Move to the leader that a node reports, or wait if it knows none."""
        leader = NodeId(elsewhere.leader)
        if sender != self.node and not self.astray:
            return  # The client has left this node, which may report an old leader.
        self.learn(elsewhere.nodes)
        self.led = bool(leader)
        if leader == self.node:
            self._resend_in(0.0)
        elif leader and not (leader == self._lost and self._tried):
            self._tried = self._lost == leader
            self._move_to(leader)
        elif sender == self.node:
            self._wait_here()

    def learn(self, nodes: Iterable[str]) -> None:
        """Store the nodes of the group. The route `entry` also keeps the nodes it already knew."""
        known = tuple(dict.fromkeys(map(NodeId, nodes)))
        if not self.group:
            known = tuple(dict.fromkeys((*known, *self.nodes)))
        self.nodes = known[:NODES_MAX] or self.nodes

    def hint(self, leader: str, nodes: Iterable[str]) -> None:
        """Use the leader and nodes that `entry` reports, unless this group has already answered."""
        if self.astray:
            self.learn(nodes)
            if leader and leader not in (self.node, self._lost):
                self._move_to(NodeId(leader))

    def _wait_here(self) -> None:
        if not self._waiting:  # Every pending call gets this answer, but one wait is enough.
            self.astray = self._waiting = True
            self._host.later(self._host.rng.uniform(0.5, 1.0) * WAIT_HERE, Redial(self.group))

    def _next_node(self) -> NodeId:
        """Return the node that was left the longest time ago."""
        others = [node for node in self.nodes if node != self.node] or list(self.nodes)
        return min(others, key=lambda node: self._left.get(node, 0))

    def _move_to(self, node: NodeId) -> None:
        """Move to another node and resend, after a pause that grows with the number of moves."""
        self._go(node)
        pause = REDIAL * min(self._strays, 4)
        self._strays += 1
        self._resend_in(self._host.rng.uniform(0.0, pause or REDIAL / 10))

    def _go(self, node: NodeId) -> None:
        left, self.node = self.node, node
        if node != left:
            self._leavings += 1
            self._left = {each: self._left.get(each, 0) for each in self.nodes}
            self._left[left] = self._leavings
            self._routes.left(left)

    def _resend_in(self, seconds: float) -> None:
        self.astray, self._waiting = True, False
        self._host.later(seconds, Redial(self.group))

    def timeout(self, timer: Timer) -> None:
        if isinstance(timer, AskAround):
            self._ask_around()
            return
        if self._waiting:
            self._waiting = self._tried = False  # The lost node may be back up.
            self._go(self._next_node())
        self._pending.redial(self)

    # -- silence --

    def look(self, *, owes: bool) -> None:
        """Schedule a query to the other nodes if this node owes an answer and is silent."""
        if owes and not self._asking and self._silent:
            self._asking = True
            patience = RING_SILENCE if self.of_ring else SILENCE
            self._host.later(patience, AskAround(self.group))

    @property
    def _silent(self) -> bool:
        silent = self._host.now - self.heard >= SILENCE
        return silent and (self.of_ring or not self.astray)

    def _ask_around(self) -> None:
        self._asking = self._silent and self in self._pending.owing()
        if not self._asking:
            return
        if self.of_ring:
            self._leave_silent()
            return
        for node in self.nodes:
            if node != self.node:
                self._host.send(node, LookGroup(0), after=0)
        self._host.later(ASK_EVERY, AskAround(self.group))

    def _leave_silent(self) -> None:
        self._asking = False
        if len(self.nodes) > 1:
            self.heard = self._host.now  # The next node gets the full time to answer.
            self._move_to(self._next_node())

    def seen(self, view: GroupView) -> None:
        """Move to the leader that another node reports while the current node is silent."""
        leader, here = NodeId(view.leader), self.node
        if self._asking and view.node != here and leader not in ("", here):
            self._move_to(leader)
