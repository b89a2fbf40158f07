"""Links between stacks in the same process.

A local link behaves like a network link: messages arrive in a later loop iteration, in order and
without gaps, until the other stack closes. Protocols that watch it then get `down`. Messages are
encoded so that the same checks and limits apply.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol as Interface

from oncecast.kernel.protocol import NodeId
from oncecast.network.addresses import name_of
from oncecast.network.connection import Connection, Session, Wires
from oncecast.network.handshake import Hello, Identity
from oncecast.network.links import Down

# Takes a connection, its Hello and its principal. Starts a session or raises Refused.
Accept = Callable[[Connection, Hello, str], Session]


class LocalStack(Interface):
    """A stack as seen by the listener and by the other stacks in its process."""

    identity: Identity
    roles: dict[str, Accept]
    paused: bool
    local_links: dict[NodeId, LocalLink]  # by receiving node

    def hear(self, sender: NodeId, body: bytes) -> None:
        """Receive a message from another stack."""


LocalStacks = dict[str, LocalStack]  # by node name; "" stands for the primary stack


class LocalLink:
    def __init__(
        self, wires: Wires, stacks: LocalStacks, *, me: NodeId, peer: NodeId, down: Down
    ) -> None:
        self.watched = False
        self._wires, self._stacks, self._name = wires, stacks, name_of(peer)
        self._me, self._peer, self._down = me, peer, down
        self._waiting: deque[bytes] = deque()
        self._due = False
        self.unsent_bytes = 0

    def send(self, message: bytes) -> None:
        if self._name not in self._stacks:
            self._wires.stats.bytes_dropped += len(message)
            return
        if self.unsent_bytes > self._wires.options.queue_bytes_max:
            reason = f"{self.unsent_bytes} bytes unsent; dropped"
            self._wires.incidents.report("slow", peer=self._peer, reason=reason)
            self.lost()
        self._waiting.append(message)
        self.unsent_bytes += len(message)
        self.carry_soon()

    def watch(self) -> None:
        self.watched = True
        if self._name not in self._stacks:
            self._wires.loop.call_soon(self.lost)

    def carry_soon(self) -> None:
        if not self._due:
            self._due = True
            self._wires.loop.call_soon(self._carry)

    def _carry(self) -> None:
        self._due = False
        for _ in range(len(self._waiting)):  # later messages wait for the next turn
            stack = self._stacks.get(self._name)
            if stack is None or stack.paused or not self._waiting:
                return
            message = self._waiting.popleft()
            self.unsent_bytes -= len(message)
            stack.hear(self._me, message)
        if self._waiting:
            self.carry_soon()

    def lost(self) -> None:
        """Drop the pending messages and call `down`. The other stack is closed or too slow."""
        self._wires.stats.bytes_dropped += self.unsent_bytes
        self._waiting.clear()
        self.unsent_bytes = 0
        if self.watched:
            self.watched = False
            self._down(self._peer)
