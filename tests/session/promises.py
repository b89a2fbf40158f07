"""What a service of one node promises, looked at after every step of a simulation."""

from __future__ import annotations

from random import Random
from typing import Any

from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.node.assemble import assemble
from oncecast.pubsub.machine import Machine
from oncecast.pubsub.service import Service
from oncecast.runtime.checkers import Checker, Violation
from oncecast.runtime.faults import Storm
from oncecast.runtime.simulated import Simulation
from oncecast.runtime.trace import Step
from tests.session.visitors import Acked, Got, Publisher, Reader

NODE = NodeId("node")
STORM_SECONDS = 12.0
CALM_SECONDS = 30.0


def machine_of(sim: Simulation) -> Machine | None:
    stack = sim.nodes[NODE].stack
    if stack is None:
        return None
    (service,) = [each for each in stack.protocols if isinstance(each, Service)]
    return service.machine


class ExactlyOnce(Checker):
    """Nothing acked is ever lost; everybody reads the same, each once, in order."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.acked: dict[str, int] = {}  # of each producer, the messages before this
        self.promised: dict[str, dict[int, None]] = {}
        self.read: dict[str, list[bytes]] = {}
        self.log: list[bytes] = []  # the longest that anybody has read

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
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
                f"another {self.log[got.offset]!r}"
            )

    def after(self, sim: Simulation, step: Step) -> None:
        if step.node != NODE or step.kind not in ("start", "receive"):
            return
        machine = machine_of(sim)
        if step.kind == "start" and machine is not None:
            self._remembers(machine)

    def _remembers(self, machine: Machine) -> None:
        """After a crash, all that was acked and all that was read is there."""
        topic = machine.registry.topics.get(self.topic)
        end = 0 if topic is None else topic.index.next
        if end < len(self.log):
            raise Violation(f"{len(self.log)} were read and {end} are remembered")
        for name, sequences in self.promised.items():
            producer = None if topic is None else topic.producers.get(name)
            if producer is None or producer.next <= max(sequences):
                raise Violation(f"{name}: acked up to {max(sequences)} and forgotten")

    def finish(self, sim: Simulation) -> None:
        seen: dict[str, int] = {}
        for value in self.log:
            name, sequence = value.decode().rsplit("/", 1)
            if int(sequence) != seen.get(name, 0):
                raise Violation(f"{value!r} came where {seen.get(name, 0)} was due")
            seen[name] = int(sequence) + 1
        for name, sequences in self.promised.items():
            if seen.get(name, 0) != len(sequences):
                raise Violation(f"{name}: acked {len(sequences)}, read {seen.get(name, 0)}")
        for name, values in self.read.items():
            if len(values) != len(self.log):
                raise Violation(f"{name} read {len(values)} of {len(self.log)}")


def build_node(me: NodeId, rng: Random) -> Stack:
    return assemble(me, rng, snapshot_bytes=4096).stack


def visit(
    sim: Simulation, *, publishers: int = 2, readers: int = 2, batches: int = 40
) -> ExactlyOnce:
    """Publishers and readers at a node, through a storm, until it has been calm for a while."""
    checker = ExactlyOnce("topic")
    sim.check(checker)
    sim.add(NODE, build_node, durable=True)

    def make(kind: type[Any], **options: Any) -> Any:
        return lambda me, rng: Stack([kind(me, rng, node=NODE, topic="topic", **options)])

    # Readers first: nothing is kept for who is not there yet.
    for at in range(readers):
        sim.add(NodeId(f"reader{at}"), make(Reader, window=5 + 20 * at))
    sim.run(until=2.0)
    for at in range(publishers):
        sim.add(NodeId(f"publisher{at}"), make(Publisher, batches=batches, pause=0.5))
    storm = Storm(sim, [NODE], away_max=1, every=0.25, lasting=0.25)
    storm.begin()
    sim.run(until=STORM_SECONDS)
    storm.calm()
    sim.run(until=STORM_SECONDS + CALM_SECONDS)
    sim.finish()
    if not checker.log:
        raise Violation("nothing was read at all")
    return checker
