"""Run two real groups that share the topics of a ring, with an entry at each process.

The ring itself is not simulated: all processes read one table of owners, which the replicas update.
The table is slightly stale, as it would be in a real ring.
"""

from __future__ import annotations

from random import Random
from typing import Any

from oncecast.broker.guard import PrincipalOf, anonymous
from oncecast.broker.service import Service
from oncecast.dht.identifiers import Key, key_of, up_to
from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.kernel.stack import Stack
from oncecast.node.assemble import RingMembership, assemble
from oncecast.ring.events import GroupFacts, KeyOwner, WhereIs, WhoseKey
from oncecast.simulator.simulated import Build
from oncecast.wire.frames import Call, Fetch, Look, Owned, Scan
from tests.client.session.client_world import FAST, TOPIC, World

PROCESSES = [NodeId(f"p{each}:1") for each in (1, 2, 3)]
OLD = "old"


def lies_in(low: str, topic: str, high: str) -> bool:
    return up_to(key_of(low), key_of(topic), key_of(high))


# The new group claims the arc between the old group and itself: one topic moves, another stays.
STAYS = next(name for name in (f"stays{n}" for n in range(99)) if lies_in(TOPIC, name, OLD))
NEW = next(
    name
    for name in (f"new{n}" for n in range(99))
    if lies_in(OLD, TOPIC, name) and not lies_in(OLD, STAYS, name)
)


class RingProcess(Protocol):
    """Answers requests about topics with their owners, and requests about groups."""

    name = "process"
    Message = Call | Fetch | Look | Scan | WhoseKey | WhereIs | GroupFacts

    def __init__(
        self, me: NodeId, rng: Random, facts: dict[str, GroupFacts], processes: int = len(PROCESSES)
    ) -> None:
        super().__init__(me, rng)
        self._facts, self._processes = facts, processes

    def receive(
        self, sender: NodeId, message: Call | Fetch | Look | Scan | WhoseKey | WhereIs | GroupFacts
    ) -> None:
        if isinstance(message, GroupFacts):
            known = self._facts.get(message.group)
            if known is None or known.applied <= message.applied:
                self._facts[message.group] = message
            return
        if isinstance(message, WhereIs):
            if message.group in self._facts:
                self.send(sender, self._facts[message.group])
            return
        topic = getattr(message.command if isinstance(message, Call) else message, "topic", "")
        owner = self._owner(message.key if isinstance(message, WhoseKey) else key_of(topic))
        if owner is None:
            return  # the sender asks again
        if isinstance(message, WhoseKey):
            self.send(sender, KeyOwner(message.key, owner, self._processes))
        else:
            self.send(sender, Owned(topic, owner.group, owner.leader, owner.nodes))

    def _owner(self, key: Key) -> GroupFacts | None:
        for each in self._facts.values():
            if each.low is not None and up_to(each.low, key, key_of(each.group)):
                return each
        return None


class RingWorld(World):
    """A ring of three processes, each with a replica of both groups.

    At first the old group owns all topics.
    """

    principal_of: PrincipalOf = staticmethod(anonymous)

    def __init__(self, seed: int, **weather: Any) -> None:
        self.facts: dict[str, GroupFacts] = {}
        self.replicas: dict[str, list[NodeId]] = {}
        super().__init__(seed, replicas=len(PROCESSES), **weather)

    def build(self, node: Build) -> None:
        self.nodes = PROCESSES
        for process in PROCESSES:
            self.sim.add(process, lambda me, rng: Stack([RingProcess(me, rng, self.facts)]))
        self.found(OLD, first=True)

    def found(self, group: str, *, first: bool = False) -> None:
        nodes = self.replicas[group] = [NodeId(f"{process}/{group}") for process in PROCESSES]

        def replica(me: NodeId, rng: Random) -> Stack:
            contacts = () if me == nodes[0] else (nodes[0],)
            membership = RingMembership(group, NodeId(me.partition("/")[0]), first)
            return assemble(
                me,
                rng,
                snapshot_bytes=4096,
                options=FAST,
                contacts=contacts,
                membership=membership,
                principal_of=self.principal_of,
            ).stack

        for each in nodes:
            self.sim.add(each, replica, durable=True)

    def owns(self, group: str, topic: str) -> bool:
        """Return whether any replica of the group has the topic."""
        stacks = [self.sim.nodes[node].stack for node in self.replicas[group]]
        services = [
            protocol
            for stack in stacks
            if stack is not None
            for protocol in stack.protocols
            if isinstance(protocol, Service)
        ]
        return any(topic in service.machine.registry.topics for service in services)
