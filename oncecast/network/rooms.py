"""Several stacks behind one door: each has a room, and there are passages between them.

A passage is to a stack what a link is, without a network: messages arrive in a later turn of the
loop, in order and without a gap until the other stack is closed; whoever watches it is then told.
They are encoded all the same, so that the same things are understood, refused and bounded.
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

# Takes a connection whose Hello names its role, and returns its session; or raises Refused.
Accept = Callable[[Connection, Hello], Session]


class Room(Interface):
    """One stack, as the door and its neighbours see it."""

    identity: Identity
    roles: dict[str, Accept]
    paused: bool
    passages: dict[NodeId, Passage]  # from here, by the neighbour

    def hear(self, sender: NodeId, body: bytes) -> None:
        """A message of a neighbour."""


Rooms = dict[str, Room]  # by the name behind the address; "" is the one whose door it is


class Passage:
    def __init__(self, wires: Wires, rooms: Rooms, *, me: NodeId, peer: NodeId, down: Down) -> None:
        self.watched = False
        self._wires, self._rooms, self._name = wires, rooms, name_of(peer)
        self._me, self._peer, self._down = me, peer, down
        self._waiting: deque[bytes] = deque()
        self._due = False
        self.unsent_bytes = 0

    def send(self, message: bytes) -> None:
        if self._name not in self._rooms:
            self._wires.stats.bytes_dropped += len(message)
            return
        if self.unsent_bytes > self._wires.options.queue_bytes_max:
            reason = f"{self.unsent_bytes} bytes wait for it; they are dropped"
            self._wires.incidents.report("slow", peer=self._peer, reason=reason)
            self.lost()
        self._waiting.append(message)
        self.unsent_bytes += len(message)
        self.carry_soon()

    def watch(self) -> None:
        self.watched = True
        if self._name not in self._rooms:
            self._wires.loop.call_soon(self.lost)

    def carry_soon(self) -> None:
        if not self._due:
            self._due = True
            self._wires.loop.call_soon(self._carry)

    def _carry(self) -> None:
        self._due = False
        for _ in range(len(self._waiting)):  # what is sent meanwhile goes in the next turn
            room = self._rooms.get(self._name)
            if room is None or room.paused or not self._waiting:
                return
            message = self._waiting.popleft()
            self.unsent_bytes -= len(message)
            room.hear(self._me, message)
        if self._waiting:
            self.carry_soon()

    def lost(self) -> None:
        """The other stack is closed, or too much waits for it: nothing of that will arrive."""
        self._wires.stats.bytes_dropped += self.unsent_bytes
        self._waiting.clear()
        self.unsent_bytes = 0
        if self.watched:
            self.watched = False
            self._down(self._peer)
