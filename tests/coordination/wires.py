"""Members that run one protocol each, connected by reliable, ordered links."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from random import Random

from oncecast.kernel.protocol import Emit, NodeId, Protocol, Send, Value


def names(count: int) -> list[NodeId]:
    return [NodeId(f"n{index:03}") for index in range(count)]


class Wires:
    def __init__(self, members: Mapping[NodeId, Protocol], rng: Random | None = None) -> None:
        self.members = dict(members)
        self.rng = rng  # picks the next link; if None, the oldest message is next
        self.links: dict[tuple[NodeId, NodeId], deque[Value]] = {}
        self.order: deque[tuple[NodeId, NodeId]] = deque()  # one link for each message in flight
        self.crashed: dict[NodeId, None] = {}
        self.sent: list[tuple[NodeId, NodeId, Value]] = []
        self.events: list[tuple[NodeId, Value]] = []

    def ask(self, node: NodeId, request: Value) -> None:
        self.members[node].request(request)
        self._carry(node)

    def run(self, steps: int = 1_000_000) -> int:
        """Deliver messages until none are in flight, and return their number."""
        for done in range(steps):
            if not self.order:
                return done
            if self.rng:
                self.order.remove(link := self.rng.choice(self.order))
            else:
                link = self.order.popleft()
            self._deliver(*link)
        return steps

    def crash(self, node: NodeId) -> None:
        """Stop `node`; the messages that it has sent are still delivered."""
        self.crashed[node] = None

    def heard(self, node: NodeId) -> list[Value]:
        return [event for each, event in self.events if each == node]

    def _deliver(self, sender: NodeId, to: NodeId) -> None:
        message = self.links[sender, to].popleft()
        if to not in self.crashed:
            self.members[to].receive(sender, message)
            self._carry(to)

    def _carry(self, node: NodeId) -> None:
        for effect in self.members[node].drain():
            match effect:
                case Send(to, message):
                    self.sent.append((node, to, message))
                    self.links.setdefault((node, to), deque()).append(message)
                    self.order.append((node, to))
                case Emit(event):
                    self.events.append((node, event))
                case _:
                    raise AssertionError(f"{node}: {effect} needs a clock or a disk")
