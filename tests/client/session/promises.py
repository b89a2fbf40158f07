"""Check the guarantees of a single node after every simulation step."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from oncecast.broker.machine import Machine
from oncecast.broker.service import Service
from oncecast.kernel.protocol import Emit, NodeId, Protocol, Snapshot, Value
from oncecast.kernel.stack import Stack
from oncecast.node.assemble import assemble
from oncecast.replication.events import Decided
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.faults import Storm
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.step import Step
from tests.broker.visitors import Acked, Got, Publisher, Reader

NODE = NodeId("node")
STORM_SECONDS = 12.0
CALM_SECONDS = 30.0


def service_of(sim: Simulation) -> Service:
    stack = sim.nodes[NODE].stack
    assert stack is not None, "the node is down"
    (service,) = [each for each in stack.protocols if isinstance(each, Service)]
    return service


class ExactlyOnce(Checker):
    """Checks that no acknowledged message is lost and that readers get each once, in order.

    Client names start with their topic: `topic/...`.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.promised: dict[str, dict[int, None]] = {}  # producer -> acknowledged sequences
        self.read: dict[str, list[bytes]] = {}
        self.log: list[bytes] = []  # messages of the reader that is furthest ahead

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        if not node.startswith(f"{self.topic}/"):
            return
        if isinstance(event, Acked):
            mine = self.promised.setdefault(event.producer, {})
            for sequence in range(event.sequence, event.sequence + event.count):
                if sequence in mine:
                    raise Violation(f"{event.producer}/{sequence} was acked twice")
                mine[sequence] = None
        elif isinstance(event, Got):
            self._read(event)

    def _read(self, got: Got) -> None:
        mine = self.read.setdefault(got.subscription, [])
        if got.offset != len(mine):
            raise Violation(f"{got.subscription} got {got.offset} after {len(mine) - 1}")
        mine.append(got.value)
        if len(mine) > len(self.log):
            self.log.append(got.value)
        elif self.log[got.offset] != got.value:
            raise Violation(
                f"at {got.offset} {got.subscription} read {got.value!r}, "
                f"but another reader {self.log[got.offset]!r}"
            )

    def after(self, sim: Simulation, step: Step) -> None:
        if step.node == NODE and step.kind == "start":
            self._remembers(service_of(sim).machine)

    def _remembers(self, machine: Machine) -> None:
        """Check after a crash that all acknowledged and all read messages are present."""
        topic = machine.registry.topics.get(self.topic)
        end = 0 if topic is None else topic.index.next
        if end < len(self.log):
            raise Violation(f"{len(self.log)} messages were read, but the topic ends at {end}")
        for name, sequences in self.promised.items():
            producer = None if topic is None else topic.producers.get(name)
            if producer is None or producer.next <= max(sequences):
                raise Violation(f"{name}: acked up to {max(sequences)}, but not stored")

    def finish(self, sim: Simulation) -> None:
        seen: dict[str, int] = {}
        for value in self.log:
            name, sequence = value.split(b" ")[0].decode().rsplit("/", 1)
            if int(sequence) != seen.get(name, 0):
                raise Violation(f"{value!r} arrived, but {seen.get(name, 0)} was expected")
            seen[name] = int(sequence) + 1
        for name, sequences in self.promised.items():
            if seen.get(name, 0) != len(sequences):
                raise Violation(f"{name}: acked {len(sequences)}, read {seen.get(name, 0)}")
        for name, values in self.read.items():
            if len(values) != len(self.log):
                raise Violation(f"{name} read {len(values)} of {len(self.log)}")


class Upheaval(Checker):
    """Counts snapshots and carried decisions, and notes whether the log was cut."""

    def __init__(self) -> None:
        self.counts = {"snapshots": 0, "carried": 0, "cut": 0}

    def after(self, sim: Simulation, step: Step) -> None:
        if step.node != NODE:
            return
        for effect in step.effects:
            if isinstance(effect, Snapshot):
                self.counts["snapshots"] += 1
            elif isinstance(effect, Emit) and isinstance(effect.event, Decided):
                self.counts["carried"] += b"Carry" in effect.event.value[:8]
        journal = sim.nodes[NODE].journal
        if journal is not None and journal.log.first > 1:
            self.counts["cut"] = 1


def build_node(me: NodeId, rng: Random) -> Stack:
    return assemble(me, rng, snapshot_bytes=4096, window_bytes=4096).stack


def visit(sim: Simulation) -> Upheaval:
    """Run publishers and readers against one node through a storm and a calm period.

    `busy` gets most of the messages. The reader of `small` starts after the storm, so that topic
    pins the log until then.
    """
    upheaval = Upheaval()
    checkers = [ExactlyOnce("busy"), ExactlyOnce("small")]
    sim.check(upheaval, *checkers)
    sim.add(NODE, build_node, durable=True)

    def visitor(name: str, kind: Callable[..., Protocol], **options: Any) -> None:
        topic = name.split("/")[0]
        sim.add(
            NodeId(name),
            lambda me, rng: Stack([kind(me, rng, node=NODE, topic=topic, **options)]),
        )

    # Readers first: messages put before a subscription exists are not kept.
    visitor("busy/reader", Reader, window=5)
    visitor("busy/quick", Reader, window=50)
    visitor("small/reader", Reader, window=10, wait=STORM_SECONDS)
    sim.run(until=2.0)
    visitor("busy/ann", Publisher, batches=60, pause=0.3)
    visitor("busy/bob", Publisher, batches=60, pause=0.3)
    visitor("small/ann", Publisher, batches=4, pause=3.0)
    storm = Storm(sim, [NODE], away_max=1, every=0.25, lasting=0.25)
    storm.begin()
    sim.run(until=STORM_SECONDS)
    storm.calm()
    sim.run(until=STORM_SECONDS + CALM_SECONDS)
    sim.finish()
    if not all(checker.log for checker in checkers):
        raise Violation("no message was read")
    return upheaval


def storm(seed: int) -> Upheaval:
    return visit(Simulation(seed, loss=0.05, duplication=0.05))
