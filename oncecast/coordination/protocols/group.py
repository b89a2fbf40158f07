"""Group: who is a member, and who of them seems to be alive.

Needs links (watch). Serves Join, Leave; gives ViewChanged.

Each node tells each other one by Alive that it is here, whether it is a member, and whom it knows;
so one contact that is up suffices to find all. Who is silent for too long, or whose link breaks, is
suspected and leaves the view. A suspicion may be wrong: the next Alive heals it, and that node is
then given more time. So in the end, if messages take bounded time, nobody is suspected wrongly.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import assert_never

from oncecast.coordination.protocols.events import Join, Leave, ViewChanged
from oncecast.kernel.protocol import NodeId, Protocol, Value

KNOWN_MAX = 1000  # nodes; who comes beyond is not heard


class Alive(Value, tag="Alive"):
    """I am here; these I have heard of lately."""

    member: bool
    known: tuple[NodeId, ...]


class Beat(Value):
    """Timer: say Alive."""


class Silent(Value):
    """Timer: a node has said nothing for as long as it is given."""

    node: NodeId


class Acquaintance:
    """Another node, as far as this one knows."""

    __slots__ = ("member", "patience", "suspected")

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.member = False
        self.suspected = True  # until it is heard of


class Group(Protocol):
    name = "group"
    Request = Join | Leave
    Message = Alive
    Timer = Beat | Silent

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
        self.known = {peer: Acquaintance(suspect_after) for peer in self.peers}
        self.view: tuple[NodeId, ...] = ()
        self.dropped = 0  # messages of more nodes than can be known

    def start(self) -> None:
        self._beat()
        self._look()

    def request(self, request: Join | Leave) -> None:
        self.member = isinstance(request, Join)
        self._say_alive()
        self._look()

    def receive(self, sender: NodeId, message: Alive) -> None:
        for node in (sender, *message.known):
            if node not in self.known and node != self.me:
                self._meet(node)
        if sender not in self.known:
            self.dropped += 1
            return
        self._hear(sender, self.known[sender])
        self.known[sender].member = message.member
        self._look()

    def timeout(self, timer: Beat | Silent) -> None:
        match timer:
            case Beat():
                self._beat()
            case Silent(node):
                if self.known[node].suspected:
                    self._forget(node)
                else:
                    # If this is wrong, it was too early: the next time it is given longer.
                    self.known[node].patience += self.heartbeat
                    self._suspect(node)
            case _:
                assert_never(timer)

    def down(self, peer: NodeId) -> None:
        """Its link is gone, and so most often is it."""
        if peer in self.known and not self.known[peer].suspected:
            self._suspect(peer)

    def _beat(self) -> None:
        self._say_alive()
        self.later(self.heartbeat * self.rng.uniform(0.75, 1.25), Beat())

    def _say_alive(self) -> None:
        for node in self.known:
            self.send(node, self._alive())

    def _alive(self) -> Alive:
        heard = (node for node, each in self.known.items() if not each.suspected)
        return Alive(self.member, tuple(heard))

    def _meet(self, node: NodeId) -> None:
        if len(self.known) < KNOWN_MAX:
            self.known[node] = Acquaintance(self.suspect_after)
            self.send(node, self._alive())
            self.later(self.forget_after, Silent(node))

    def _hear(self, node: NodeId, each: Acquaintance) -> None:
        self.watch(node)
        if each.suspected:
            each.suspected = False
            self.send(node, self._alive())  # it may not have heard of us either
        self.later(each.patience, Silent(node))

    def _suspect(self, node: NodeId) -> None:
        self.known[node].suspected = True
        self.later(self.forget_after, Silent(node))
        self._look()

    def _forget(self, node: NodeId) -> None:
        """Who was named at the start is never given up; others may come back by themselves."""
        if node not in self.peers:
            self.unwatch(node)
            del self.known[node]

    def _look(self) -> None:
        view = [node for node, each in self.known.items() if each.member and not each.suspected]
        now = tuple(sorted([*view, self.me] if self.member else view))
        if now != self.view:
            self.view = now
            self.emit(ViewChanged(now))
