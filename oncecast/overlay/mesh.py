"""Static membership: every configured peer is a neighbour while both sides hear each other.

Needs links (watch). Gives NeighborUp and NeighborDown, never two of a kind in a row for a peer.

A node greets each peer with Hello until it hears of it, and a Hello is answered by Welcome, so that
both sides know. A node that restarts, or loses its link, greets again. Peers must list each other:
strangers are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.overlay.events import NeighborDown, NeighborUp


class Hello(Value, tag="Hello"):
    """I am here; are you?"""


class Welcome(Value, tag="Welcome"):
    """I am, and I count you as a neighbour."""


class Retry(Value):
    """Timer: a peer has not been heard of, or its link was lost."""

    peer: NodeId


class Mesh(Protocol):
    name = "mesh"
    Message = Hello | Welcome
    Timer = Retry

    def __init__(
        self, me: NodeId, rng: Random, *, peers: Iterable[NodeId], retry_every: float = 1.0
    ) -> None:
        super().__init__(me, rng)
        self.retry_every = retry_every
        # True while a neighbour. Not a set: one of strings iterates differently in every process.
        self.peers = {peer: False for peer in peers if peer != me}
        self.dropped = 0  # messages of strangers

    def start(self) -> None:
        for peer in self.peers:
            self._greet(peer)

    def receive(self, sender: NodeId, message: Hello | Welcome) -> None:
        if sender not in self.peers:
            self.dropped += 1
            return
        self._make_up(sender)
        if isinstance(message, Hello):
            self.send(sender, Welcome())

    def timeout(self, timer: Retry) -> None:
        self._greet(timer.peer)

    def down(self, peer: NodeId) -> None:
        if self.peers[peer]:
            self.peers[peer] = False
            self.emit(NeighborDown(peer))
        self._retry_later(peer)

    def _greet(self, peer: NodeId) -> None:
        self.watch(peer)
        self.send(peer, Hello())
        self._retry_later(peer)

    def _retry_later(self, peer: NodeId) -> None:
        # Jitter keeps nodes that were cut off together from greeting in step for ever.
        self.later(self.retry_every * self.rng.uniform(0.75, 1.25), Retry(peer))

    def _make_up(self, peer: NodeId) -> None:
        if not self.peers[peer]:
            self.peers[peer] = True
            self.watch(peer)
            self.cancel(Retry(peer))
            self.emit(NeighborUp(peer))
