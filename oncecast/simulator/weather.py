"""The simulated network: latency, loss, duplication and faults between nodes.

In fair weather, messages have only latency, and a fast code path handles them. In other weather,
there are fronts between some senders and some receivers:

    partition   messages are lost
    hold        messages wait until the front is lifted
    slow        messages take longer

A front has one direction. The simulation's methods create two fronts by default.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from random import Random

from oncecast.kernel.protocol import NodeId, Value
from oncecast.simulator.buckets import Action
from oncecast.simulator.latency import Draw, Fixed, Latency, Uniform

# Functions that deliver a message directly to a node, by message type.
Handlers = dict[type[Value], dict[NodeId, Action]]
LAN = Uniform(0.001, 0.05)


class Kind(Enum):
    PARTITION = "partition"
    HOLD = "hold"
    SLOW = "slow"


class Front:
    """A fault between `senders` and `receivers`. An empty side means all other nodes."""

    def __init__(
        self, kind: Kind, senders: Iterable[NodeId], receivers: Iterable[NodeId], extra: float = 0.0
    ) -> None:
        self.kind, self.extra = kind, extra
        self.senders, self.receivers = frozenset(senders), frozenset(receivers)
        self.held: list[tuple[NodeId, NodeId, Value]] = []

    def between(self, sender: NodeId, receiver: NodeId) -> bool:
        if not self.senders:
            return receiver in self.receivers and sender not in self.receivers
        if not self.receivers:
            return sender in self.senders and receiver not in self.senders
        return sender in self.senders and receiver in self.receivers


class Weather:
    def __init__(
        self,
        rng: Random,
        handlers: Handlers,
        *,
        latency: Latency = LAN,
        loss: float = 0.0,
        duplication: float = 0.0,
        fifo: bool = False,
    ) -> None:
        """Set up the network. `fifo` keeps the order of messages between two nodes, as TCP does.

        The `handlers` are used while the weather is fair.
        """
        self.rng = rng
        self._handlers = handlers
        self.fronts: list[Front] = []
        self.lost = self.duplicated = 0
        self._last: dict[tuple[NodeId, NodeId], float] = {}
        self.set(latency=latency, loss=loss, duplication=duplication, fifo=fifo)

    def set(
        self,
        *,
        latency: Latency | None = None,
        loss: float | None = None,
        duplication: float | None = None,
        fifo: bool | None = None,
    ) -> None:
        """Change some network parameters."""
        if latency is not None:
            self.latency: Draw = latency.bind(self.rng)
            self.continuous = not isinstance(latency, Fixed)  # no two messages arrive together
        if loss is not None:
            self.loss = loss
        if duplication is not None:
            self.duplication = duplication
        if fifo is not None:
            self.fifo = fifo
        self._look()

    def _look(self) -> None:
        self.fair = not (self.fronts or self.loss or self.duplication or self.fifo)
        self.handlers: Handlers = self._handlers if self.fair else {}

    def add(self, *fronts: Front) -> None:
        self.fronts += fronts
        self._look()

    def lift(self, fronts: Iterable[Front]) -> list[tuple[NodeId, NodeId, Value]]:
        """End these fronts and return the messages that they held."""
        held: list[tuple[NodeId, NodeId, Value]] = []
        for front in fronts:
            if front in self.fronts:
                self.fronts.remove(front)
                held += front.held
        self._look()
        return held

    def parted(self, sender: NodeId, receiver: NodeId) -> bool:
        return any(
            front.kind is not Kind.SLOW and front.between(sender, receiver) for front in self.fronts
        )

    def arrivals(self, now: float, sender: NodeId, to: NodeId, message: Value) -> list[float]:
        """Return the arrival times of a message: none, one or two. Not used in fair weather."""
        extra = 0.0
        for front in self.fronts:
            if not front.between(sender, to):
                continue
            if front.kind is Kind.SLOW:
                extra += front.extra
                continue
            if front.kind is Kind.HOLD:
                front.held.append((sender, to, message))
            else:
                self.lost += 1
            return []
        if self.loss and self.rng.random() < self.loss:
            self.lost += 1
            return []
        copies = 1
        if self.duplication and self.rng.random() < self.duplication:
            self.duplicated += 1
            copies = 2
        times = [now + extra + self.latency() for _ in range(copies)]
        if self.fifo:
            earliest = self._last.get((sender, to), 0.0)
            times = [max(time, earliest) for time in times]
            self._last[sender, to] = max(times)
        return times
