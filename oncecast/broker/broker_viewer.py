"""Tell which node leads the owner of a topic, and where Kafka clients reach the group's nodes.

    client → leader    LookBroker
    leader → client    BrokerView
    node → members     ServesKafka, every few seconds, if the node serves Kafka clients

Any node of the group may become the leader, so each one knows the addresses of all others. They
expire, because a node that has stopped must not be named for long.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import ClassVar

from oncecast.broker.service import Service
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.wire.frames import Answer, BrokerView, Elsewhere, LookBroker

TELL_EVERY = 2.0
EXPIRES_AFTER = 10.0
ADDRESS_MAX = 300  # maximum characters of an address


class ServesKafka(Value, tag="ServesKafka"):
    """The sender's address for Kafka clients."""

    address: str


class TellAddress(Value):
    """Timer: tell the other members this node's address."""


class BrokerViewer(Protocol):
    name = "brokers"
    Message: ClassVar = LookBroker | ServesKafka
    Timer = TellAddress

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        service: Service,
        # Returns this node's address for Kafka clients, or "" while the listener is closed.
        kafka: Callable[[], str] | None = None,
    ) -> None:
        super().__init__(me, rng)
        self._service, self._kafka = service, kafka
        self._known: dict[NodeId, tuple[str, float]] = {}  # address and time, by node

    def start(self) -> None:
        if self._kafka is not None:
            self.later(0.0, TellAddress())

    def timeout(self, timer: TellAddress) -> None:
        address = self._own
        for node in self._service.group.nodes() if address else ():
            if node != self.me:
                self.send(node, ServesKafka(address), after=0)
        self.later(TELL_EVERY, TellAddress())

    def receive(self, sender: NodeId, message: LookBroker | ServesKafka) -> None:
        if isinstance(message, LookBroker):
            self._look(sender, message)
        elif sender in self._service.group.nodes() and len(message.address) <= ADDRESS_MAX:
            self._known[sender] = (message.address, self.now)

    def _look(self, client: NodeId, look: LookBroker) -> None:
        service = self._service
        if not service.leading:
            self.send(client, Elsewhere(service.leader, service.group.nodes()))
            return
        elsewhere = service.machine.registry.elsewhere(look.topic) if look.topic else None
        if elsewhere is not None:
            self.send(client, Answer(look.id, elsewhere))
        else:
            self.send(client, BrokerView(look.id, self.me, self._brokers()))

    def _brokers(self) -> tuple[tuple[str, str], ...]:
        """Return the nodes of the group that serve Kafka clients, with their addresses."""
        found: list[tuple[str, str]] = [(self.me, self._own)] if self._own else []
        for node in self._service.group.nodes():
            address, told = self._known.get(node, ("", 0.0))
            if address and node != self.me and self.now - told < EXPIRES_AFTER:
                found.append((node, address))
        return tuple(found)

    @property
    def _own(self) -> str:
        return "" if self._kafka is None else self._kafka()
