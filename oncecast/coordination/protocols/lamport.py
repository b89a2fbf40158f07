"""LamportMutex: Lamport, "Time, Clocks, and the Ordering of Events", CACM 1978.

Needs reliable, ordered links between all members, and members that do not crash, because a silent
member blocks all others. An entry costs exactly 3(N-1) messages: a request, a reply and a release
for each other member. Members get the lock in the order of their requests.

Serves Acquire and Release. Emits Acquired. Tokens count the entries, so they grow (see Fence).
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import ClassVar, assert_never

from oncecast.coordination.protocols.clock import LamportClock, Stamp
from oncecast.coordination.protocols.events import Acquire, Acquired, Release
from oncecast.kernel.protocol import NodeId, Protocol, Value


class Wanted(Value, tag="Wanted"):
    """The paper's request message."""

    lock: str
    stamp: Stamp


class Noted(Value, tag="Noted"):
    """The paper's acknowledgement message."""

    stamp: Stamp


class Given(Value, tag="Given"):
    """The paper's release message."""

    lock: str
    stamp: Stamp


class RequestQueue:
    """The request queue of one lock. Its first member holds the lock, or gets it next."""

    def __init__(self) -> None:
        self.requests: dict[NodeId, Stamp] = {}
        self.entries = 0  # finished entries
        self.held = False  # whether this node holds the lock


class LamportMutex(Protocol):
    name = "lamport"
    Request: ClassVar = Acquire | Release
    Message: ClassVar = Wanted | Noted | Given

    def __init__(self, me: NodeId, rng: Random, *, members: Iterable[NodeId]) -> None:
        super().__init__(me, rng)
        self.others = tuple(node for node in members if node != me)
        self.clock = LamportClock(me)
        self.heard = {node: Stamp(0, node) for node in self.others}  # the last stamp of each node
        self.queues: dict[str, RequestQueue] = {}
        self.dropped = 0  # number of messages from nodes that are not members

    def request(self, request: Acquire | Release) -> None:
        queue = self._queue(request.lock)
        match request:
            case Acquire(lock):
                if self.me not in queue.requests:
                    queue.requests[self.me] = stamp = self.clock.tick()
                    self._tell_others(Wanted(lock, stamp))
                    self._enter_if_first(lock)
            case Release(lock):
                if queue.held:
                    queue.held = False
                    self._remove(queue, self.me)
                    self._tell_others(Given(lock, self.clock.tick()))
            case _:
                assert_never(request)

    def receive(self, sender: NodeId, message: Wanted | Noted | Given) -> None:
        if sender not in self.heard or not message.stamp.possible:
            self.dropped += 1
            return
        self.clock.witness(message.stamp)
        self.heard[sender] = message.stamp
        match message:
            case Wanted(lock, stamp):
                self._queue(lock).requests[sender] = stamp
                self.send(sender, Noted(self.clock.tick()))
            case Given(lock):
                self._remove(self._queue(lock), sender)
            case Noted():
                pass
            case _:
                assert_never(message)
        for lock in self.queues:
            self._enter_if_first(lock)

    def _queue(self, lock: str) -> RequestQueue:
        return self.queues.setdefault(lock, RequestQueue())

    def _tell_others(self, message: Wanted | Given) -> None:
        for node in self.others:
            self.send(node, message)

    def _remove(self, queue: RequestQueue, node: NodeId) -> None:
        if queue.requests.pop(node, None) is not None:
            queue.entries += 1

    def _enter_if_first(self, lock: str) -> None:
        """Take the lock if our request is first and no earlier request can still arrive."""
        queue = self.queues[lock]
        mine = queue.requests.get(self.me)
        if mine is None or queue.held:
            return
        if mine == min(queue.requests.values()) and all(
            mine < stamp for stamp in self.heard.values()
        ):
            queue.held = True
            # All earlier releases have arrived, so every member has the same count.
            self.emit(Acquired(lock, queue.entries + 1))
