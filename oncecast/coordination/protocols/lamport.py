"""LamportMutex: the algorithm of "Time, Clocks, and the Ordering of Events", CACM 1978, as it is.

Needs links between all members that lose nothing and keep the order, and members that do not crash:
one that is silent blocks all others. An entry costs exactly 3(N-1) messages: request, reply and
release, one each to or from each other member. The lock is given in the order of the requests.

Serves Acquire, Release; gives Acquired. Tokens count the entries, so they fence (see Fence).
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import assert_never

from oncecast.coordination.protocols.clock import LamportClock, Stamp
from oncecast.coordination.protocols.events import Acquire, Acquired, Release
from oncecast.kernel.protocol import NodeId, Protocol, Value


class Wanted(Value, tag="Wanted"):
    """The paper's request."""

    lock: str
    stamp: Stamp


class Noted(Value, tag="Noted"):
    """The paper's acknowledgement."""

    stamp: Stamp


class Given(Value, tag="Given"):
    """The paper's release."""

    lock: str
    stamp: Stamp


class Line:
    """Who waits for one lock or holds it, each with the stamp of its request."""

    def __init__(self) -> None:
        self.requests: dict[NodeId, Stamp] = {}
        self.entries = 0  # that are over
        self.held = False  # by this node


class LamportMutex(Protocol):
    name = "lamport"
    Request = Acquire | Release
    Message = Wanted | Noted | Given

    def __init__(self, me: NodeId, rng: Random, *, members: Iterable[NodeId]) -> None:
        super().__init__(me, rng)
        self.others = tuple(node for node in members if node != me)
        self.clock = LamportClock(me)
        self.heard = {node: Stamp(0, node) for node in self.others}  # the last stamp of each
        self.lines: dict[str, Line] = {}
        self.dropped = 0  # messages of strangers

    def request(self, request: Acquire | Release) -> None:
        line = self._line(request.lock)
        match request:
            case Acquire(lock):
                if self.me not in line.requests:
                    line.requests[self.me] = stamp = self.clock.tick()
                    self._tell_others(Wanted(lock, stamp))
                    self._enter_if_first(lock)
            case Release(lock):
                if line.held:
                    line.held = False
                    self._remove(line, self.me)
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
                self._line(lock).requests[sender] = stamp
                self.send(sender, Noted(self.clock.tick()))
            case Given(lock):
                self._remove(self._line(lock), sender)
            case Noted():
                pass
            case _:
                assert_never(message)
        for lock in self.lines:
            self._enter_if_first(lock)

    def _line(self, lock: str) -> Line:
        return self.lines.setdefault(lock, Line())

    def _tell_others(self, message: Wanted | Given) -> None:
        for node in self.others:
            self.send(node, message)

    def _remove(self, line: Line, node: NodeId) -> None:
        if line.requests.pop(node, None) is not None:
            line.entries += 1

    def _enter_if_first(self, lock: str) -> None:
        """Nobody can come before us any more, and nobody who has come before is left."""
        line = self.lines[lock]
        mine = line.requests.get(self.me)
        if mine is None or line.held:
            return
        if mine == min(line.requests.values()) and all(
            mine < stamp for stamp in self.heard.values()
        ):
            line.held = True
            # All releases of earlier entries have come: every member counts the same.
            self.emit(Acquired(lock, line.entries + 1))
