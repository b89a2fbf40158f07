"""Group: the members that seem to be alive.

Needs links (watch). Serves Join and Leave. Emits ViewChanged.

Each node sends Alive to each node that it knows. The message lists the nodes that the sender knows,
and states whether it is a member. So one running contact is enough to find all nodes. A node that
is silent for too long, or whose link breaks, is suspected and leaves the view. If the suspicion was
wrong, the next Alive ends it, and that node gets a longer timeout. So if message delays are
bounded, wrong suspicions eventually stop.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import ClassVar, assert_never

from oncecast.coordination.protocols.events import Join, Leave, ViewChanged
from oncecast.kernel.protocol import NodeId, Protocol, Value

KNOWN_MAX = 1000  # maximum number of known nodes; messages from further nodes are dropped


class Alive(Value, tag="Alive"):
    """The sender is alive, and has recently heard from the nodes in `known`."""

    member: bool
    known: tuple[NodeId, ...]


class Beat(Value):
    """Timer: send Alive."""


class Silent(Value):
    """Timer: a node was silent for its timeout."""

    node: NodeId


class Peer:
    """The state that this node keeps about another node."""

    __slots__ = ("member", "suspected", "timeout")

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.member = False
        self.suspected = True  # true until the first Alive arrives


class Group(Protocol):
    name = "group"
    Request: ClassVar = Join | Leave
    Message = Alive
    Timer: ClassVar = Beat | Silent

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        peers: Iterable[NodeId],
        member: bool = True,
        heartbeat: float = 0.5,
        suspect_after: float = 2.0,
        forget_after: float = 60.0,
    ) -> None:
        super().__init__(me, rng)
        self.heartbeat, self.suspect_after = heartbeat, suspect_after
        self.forget_after = forget_after
        self.member = member
        self.peers = dict.fromkeys(peer for peer in peers if peer != me)
        self.known = {peer: Peer(suspect_after) for peer in self.peers}
        self.view: tuple[NodeId, ...] = ()
        self.dropped = 0  # number of messages from nodes beyond KNOWN_MAX

    def start(self) -> None:
        self._beat()
        self._update_view()

    def request(self, request: Join | Leave) -> None:
        self.member = isinstance(request, Join)
        self._send_alive()
        self._update_view()

    def receive(self, sender: NodeId, message: Alive) -> None:
        for node in (sender, *message.known):
            if node not in self.known and node != self.me:
                self._add(node)
        if sender not in self.known:
            self.dropped += 1
            return
        self._on_alive(sender, self.known[sender])
        self.known[sender].member = message.member
        self._update_view()

    def timeout(self, timer: Beat | Silent) -> None:
        match timer:
            case Beat():
                self._beat()
            case Silent(node):
                if self.known[node].suspected:
                    self._forget(node)
                else:
                    # The timeout may have been too short, so use a longer one next time.
                    self.known[node].timeout += self.heartbeat
                    self._suspect(node)
            case _:
                assert_never(timer)

    def down(self, peer: NodeId) -> None:
        """Suspect a peer whose link is lost, because the peer has probably crashed."""
        if peer in self.known and not self.known[peer].suspected:
            self._suspect(peer)

    def _beat(self) -> None:
        self._send_alive()
        self.later(self.heartbeat * self.rng.uniform(0.75, 1.25), Beat())

    def _send_alive(self) -> None:
        for node in self.known:
            self.send(node, self._alive())

    def _alive(self) -> Alive:
        heard = (node for node, each in self.known.items() if not each.suspected)
        return Alive(self.member, tuple(heard))

    def _add(self, node: NodeId) -> None:
        if len(self.known) < KNOWN_MAX:
            self.known[node] = Peer(self.suspect_after)
            self.send(node, self._alive())
            self.later(self.forget_after, Silent(node))

    def _on_alive(self, node: NodeId, each: Peer) -> None:
        self.watch(node)
        if each.suspected:
            each.suspected = False
            self.send(node, self._alive())  # the node may have missed our messages too
        self.later(each.timeout, Silent(node))

    def _suspect(self, node: NodeId) -> None:
        self.known[node].suspected = True
        self.later(self.forget_after, Silent(node))
        self._update_view()

    def _forget(self, node: NodeId) -> None:
        """Forget a node, unless it is a configured peer. A forgotten node can contact us again."""
        if node not in self.peers:
            self.unwatch(node)
            del self.known[node]

    def _update_view(self) -> None:
        view = [node for node, each in self.known.items() if each.member and not each.suspected]
        now = tuple(sorted([*view, self.me] if self.member else view))
        if now != self.view:
            self.view = now
            self.emit(ViewChanged(now))
