"""Static membership: a configured peer is a neighbour while messages pass in both directions.

Needs links (watch). Emits NeighborUp and NeighborDown alternately for each peer.

A node sends Hello to each peer until the peer answers with Welcome. A node that restarts or loses a
link sends Hello again. Peers must list each other: a node ignores messages from unlisted nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import ClassVar

from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.overlay.events import NeighborDown, NeighborUp
from oncecast.overlay.messages import Hello, Retry, Welcome


class Mesh(Protocol):
    name = "mesh"
    Message: ClassVar = Hello | Welcome
    Timer = Retry

    def __init__(
        self, me: NodeId, rng: Random, *, peers: Iterable[NodeId], retry_every: float = 1.0
    ) -> None:
        super().__init__(me, rng)
        self.retry_every = retry_every
        # The value is True for a neighbour. A set would iterate differently in each process.
        self.peers = {peer: False for peer in peers if peer != me}
        self.dropped = 0  # number of messages from unlisted nodes

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
        # Without jitter, nodes that were cut off at the same time would greet in lockstep.
        self.later(self.retry_every * self.rng.uniform(0.75, 1.25), Retry(peer))

    def _make_up(self, peer: NodeId) -> None:
        if not self.peers[peer]:
            self.peers[peer] = True
            self.watch(peer)
            self.cancel(Retry(peer))
            self.emit(NeighborUp(peer))
